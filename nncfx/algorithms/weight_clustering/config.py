"""The config of weight clustering."""

import dataclasses
from typing import Any, ClassVar, Final, Literal

from nncfx.config.option import Limits, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.section import Section

_MOST_BITS: Final = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightClusteringParams(Section):
    """When the weights are clustered, and how."""

    start_epoch: int = option(
        0,
        "the epoch, counted from 0, at the start of which the weights are clustered",
        limits=Limits(minimum=0),
    )
    init: Literal["linear", "density", "random"] = option(
        "linear",
        "where k-means starts: equally spaced values, equally many weights, or random weights",
    )
    seed: int = option(0, "the seed of the random start", limits=Limits(minimum=0))
    gradient: Literal["mean", "sum"] = option(
        "mean",
        "the gradient of a shared value: the mean of its weights' gradients, which keeps the "
        "learning rate of single weights, or their sum, as in Deep Compression",
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightClusteringConfig(InitializedAlgorithmConfig):
    """Let the weights of each layer share a few values (nncfx only)."""

    algorithm: ClassVar[str] = "weight_clustering"

    bits: int = option(
        5,
        "bits of a code: a layer has 2 ** bits values, of which one is zero",
        limits=Limits(minimum=1, maximum=_MOST_BITS),
    )
    bits_by_scope: Any = option(
        None,
        "other bits for the operations of an address, scope or {re} pattern; the last match "
        "counts",
        schema={
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": _MOST_BITS},
        },
    )
    params: WeightClusteringParams = option(
        WeightClusteringParams(), "when the weights are clustered, and how"
    )
