"""The config of magnitude sparsity."""

import dataclasses
from typing import ClassVar, Literal

from nncfx.config.option import LEVEL, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.sparsity_schedule import RisingSparsity, SparsityParams


@dataclasses.dataclass(frozen=True, kw_only=True)
class MagnitudeSparsityParams(SparsityParams):
    """The schedule of magnitude sparsity, and how it ranks weights."""

    weight_importance: Literal["abs", "normed_abs"] = option(
        "normed_abs", "rank weights by |w|, or by |w| divided by the Euclidean norm of their layer"
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class MagnitudeSparsityConfig(RisingSparsity, InitializedAlgorithmConfig):
    """Zero the weights of smallest magnitude."""

    algorithm: ClassVar[str] = "magnitude_sparsity"

    sparsity_init: float = option(
        0.0, "the fraction of weights that is zero from the start", limits=LEVEL
    )
    params: MagnitudeSparsityParams = option(
        MagnitudeSparsityParams(), "the schedule of the level, and how weights are ranked"
    )
