"""The config of the algorithm that removes tiles of weights."""

import dataclasses
from typing import ClassVar, Literal

from nncfx.config.option import LEVEL, Limits, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.sparsity_schedule import RisingSparsity, SparsityParams


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockPruningParams(SparsityParams):
    """The schedule, and the shape of a block."""

    block: tuple[int, ...] = option(
        (4, 4),
        "the size of a block along each axis of a weight, output channels first, such as [4, "
        "4]; 1 along axes that are not given",
        limits=Limits(minimum=1, min_items=1),
    )
    block_importance: Literal["L2", "L1", "max"] = option(
        "L2", "the score of a block: a norm of its weights, or their largest magnitude"
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockPruningConfig(RisingSparsity, InitializedAlgorithmConfig):
    """Zero whole tiles of weights (nncfx only)."""

    algorithm: ClassVar[str] = "block_pruning"

    sparsity_init: float = option(
        0.0, "the fraction of blocks that is zero from the start", limits=LEVEL
    )
    params: BlockPruningParams = option(
        BlockPruningParams(), "the schedule of the level, and the shape of a block"
    )
