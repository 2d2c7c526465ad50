"""The sparsity schedule that the configs of several algorithms share."""

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import LEVEL, Limits, option
from nncfx.config.section import Section

SparsityScheduleName: TypeAlias = Literal[
    "polynomial", "exponential", "adaptive", "multistep", "cubic", "constant"
]
"""NNCF's schedules, and two of ours: cubic is polynomial, concave, of power 3 (Zhu and Gupta,
2017); constant is the target from the first epoch on."""

_FREEZE_EPOCH: Final = 100
"""NNCF's default."""
_TO_TARGET: Final = ("polynomial", "exponential", "cubic")
_READERS: Final = {
    "sparsity_target": (*_TO_TARGET, "adaptive", "constant"),
    "sparsity_target_epoch": _TO_TARGET,
    "multistep_steps": ("multistep",),
    "multistep_sparsity_levels": ("multistep",),
    "patience": ("adaptive",),
    "step": ("adaptive",),
    "eps": ("adaptive",),
    "power": ("polynomial",),
    "concave": ("polynomial",),
}
"""The schedules that use a key, for keys that not all use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparsityParams(Section):
    """The schedule of sparsity.

    Source: NNCF 2.19, "Sparsity", the common parameters of its schedulers.
    """

    schedule: SparsityScheduleName = option(
        "polynomial", "how the level changes from sparsity_init to sparsity_target"
    )
    sparsity_level_setting_mode: Literal["global", "local"] = option(
        "global", "whether the level holds for all weights together or for each layer by itself"
    )
    sparsity_target: float = option(
        0.5, "the fraction of weights that is zero at the end", limits=LEVEL
    )
    sparsity_target_epoch: int = option(
        90, "the epoch, counted from 0, from which the target holds", limits=Limits(minimum=0)
    )
    sparsity_freeze_epoch: int | None = option(
        None,
        "the epoch, counted from 0, from which the masks are frozen; by default 100, or the "
        "end of the schedule if that is later",
        limits=Limits(minimum=0),
    )
    update_per_optimizer_step: bool = option(
        default=False,
        doc="whether the level changes at every optimizer step instead of every epoch",
    )
    steps_per_epoch: int | None = option(
        None,
        "optimizer steps in an epoch; if not given, the first epoch only counts them, and the "
        "schedule begins after it",
        limits=Limits(minimum=1),
    )
    multistep_steps: tuple[int, ...] = option(
        (90,),
        "the epochs at which a multistep schedule moves to its next level",
        limits=Limits(minimum=0),
    )
    multistep_sparsity_levels: tuple[float, ...] = option(
        (0.1, 0.5), "the levels of a multistep schedule, one more than it has steps", limits=LEVEL
    )
    patience: int = option(
        1,
        "epochs for which an adaptive schedule waits at a level it has reached",
        limits=Limits(minimum=1),
    )
    step: float = option(
        0.05,
        "the amount by which an adaptive schedule raises the level",
        limits=Limits(above=0, below=1),
    )
    eps: float = option(
        0.03,
        "how close the sparsity must be to the level of an adaptive schedule to count as reached",
        limits=LEVEL,
    )
    power: float = option(0.9, "the power of a polynomial schedule", limits=Limits(above=0))
    concave: bool = option(
        default=True,
        doc="whether a polynomial schedule rises fast first (concave) or last (convex)",
    )

    @property
    def freeze_epoch(self) -> int:
        """The epoch from which the masks are frozen; by default, the end of the schedule."""
        if self.sparsity_freeze_epoch is not None:
            return self.sparsity_freeze_epoch
        ends = {
            "multistep": max(self.multistep_steps, default=0),
            "adaptive": 0,  # its end is unknown
            "constant": 0,
        }
        return max(_FREEZE_EPOCH, ends.get(self.schedule, self.sparsity_target_epoch))

    def unread(self) -> list[str]:
        """Return the keys that are set but not used by the schedule."""
        return [
            one.name
            for one in dataclasses.fields(self)
            if self.schedule not in _READERS.get(one.name, (self.schedule,))
            and getattr(self, one.name) != one.default
        ]

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of an adaptive schedule by step, and of a multistep schedule."""
        if self.schedule == "adaptive" and self.update_per_optimizer_step:
            yield Fault(
                path="update_per_optimizer_step",
                problem="an adaptive schedule looks at the sparsity once an epoch and has no "
                "level in between. Remove the key.",
            )
        if self.schedule != "multistep":
            return
        steps, levels = self.multistep_steps, self.multistep_sparsity_levels
        if len(levels) != len(steps) + 1:
            yield Fault(
                path="multistep_sparsity_levels",
                problem=f"has {len(levels)} levels for {len(steps)} steps; the first level holds "
                f"before the first step and each step needs one more. Write {len(steps) + 1}.",
            )
        if any(later <= earlier for earlier, later in pairwise(steps)):
            yield Fault(
                path="multistep_steps",
                problem=f"{list(steps)} does not rise; the epochs of the steps must follow each "
                "other. Sort them, and name none twice.",
            )


class RisingSparsity:
    """Mixin of configs whose level rises from `sparsity_init` by the schedule of `params`."""

    sparsity_init: float
    params: SparsityParams

    def rules(self) -> Iterator[Fault]:
        """Yield the fault of a decreasing schedule."""
        initial, params = self.sparsity_init, self.params
        # a multistep schedule lists all its levels
        if params.schedule != "multistep" and initial > params.sparsity_target:
            yield Fault(
                path="sparsity_init",
                problem=f"{initial} is above 'params.sparsity_target', which is "
                f"{params.sparsity_target}; a level never falls during training. Lower "
                "'sparsity_init' or raise 'params.sparsity_target'.",
            )
