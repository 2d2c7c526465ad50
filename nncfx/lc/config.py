"""The config of L-C: its schemes and its schedule. An addition to NNCF's configs."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option
from nncfx.config.registry import AlgorithmConfig, register_algorithm_config
from nncfx.config.scheme import SchemeConfig
from nncfx.config.sparsity_schedule import SparsityParams, SparsityScheduleName


@dataclasses.dataclass(frozen=True, kw_only=True)
class LCParams(SparsityParams):
    """The schedule, and how strongly weights are pulled towards their compressed values.

    Source: Condensa (Joseph et al. 2020), section 3.2.
    """

    schedule: SparsityScheduleName = option(
        "constant", "how the level changes from 0 to sparsity_target"
    )
    epochs_per_step: int = option(
        1,
        "epochs of training between two compressions: the length of an L step",
        limits=Limits(minimum=1),
    )
    mu_init: float = option(1e-3, "the penalty of the first L step", limits=Limits(above=0))
    mu_multiplier: float = option(
        1.1, "the factor of the penalty at each step", limits=Limits(minimum=1)
    )
    mu_cap: float = option(1e4, "the largest value of the penalty", limits=Limits(above=0))
    multipliers: bool = option(
        default=True,
        doc="whether to use Lagrange multipliers; without them, the method is the quadratic "
        "penalty",
    )
    penalize: Literal["weights", "all"] = option(
        "all",
        "whether the penalty acts on all parameters, biases and norms included, or only on "
        "weights of two or more axes",
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of the schedule, and keys that L-C does not use."""
        yield from super().rules()
        if self.sparsity_level_setting_mode == "local":
            yield Fault(
                path="sparsity_level_setting_mode",
                problem="the schemes of lc rank all weights together. Remove the key.",
            )
        if self.update_per_optimizer_step:
            yield Fault(
                path="update_per_optimizer_step",
                problem="lc compresses between epochs, so a level within one would have no "
                "effect. Remove the key.",
            )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class LCConfig(AlgorithmConfig):
    """Train by L-C: the loss pulls the weights towards their compressed values."""

    algorithm: ClassVar[str] = "lc"

    schemes: tuple[SchemeConfig, ...] = option(
        (SchemeConfig(name="Prune"),),
        "the scheme that compresses; several are applied in order",
        single=True,
        limits=Limits(min_items=1),
    )
    params: LCParams = option(
        LCParams(),
        "the schedule of the level, and how strongly weights are pulled towards their "
        "compressed values",
    )
