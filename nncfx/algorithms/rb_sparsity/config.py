"""The config of regularization-based sparsity."""

import dataclasses
from typing import ClassVar

from nncfx.config.option import LEVEL, option
from nncfx.config.registry import TrainedAlgorithmConfig, register_algorithm_config
from nncfx.config.sparsity_schedule import RisingSparsity, SparsityParams, SparsityScheduleName


@dataclasses.dataclass(frozen=True, kw_only=True)
class RBSparsityParams(SparsityParams):
    """The schedule of regularization-based sparsity."""

    schedule: SparsityScheduleName = option(
        "exponential", "how the level changes from sparsity_init to sparsity_target"
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class RBSparsityConfig(RisingSparsity, TrainedAlgorithmConfig):
    """Learn which weights to zero; a loss asks for the level."""

    algorithm: ClassVar[str] = "rb_sparsity"

    sparsity_init: float = option(
        0.0, "the level that the loss asks for at the start", limits=LEVEL
    )
    params: RBSparsityParams = option(
        RBSparsityParams(), "the schedule of the level that the loss asks for"
    )
