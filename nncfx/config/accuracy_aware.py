"""The config of accuracy-aware training."""

import dataclasses
from collections.abc import Iterator
from typing import Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option, required
from nncfx.config.section import Section

_FRACTION = Limits(above=0, below=1)
_COUNT = Limits(minimum=1)
_ADAPTIVE = (
    "initial_training_phase_epochs",
    "patience_epochs",
    "initial_compression_rate_step",
    "compression_rate_step_reduction_factor",
    "lr_reduction_factor",
    "minimal_compression_rate_step",
)
_NEEDED = {
    "early_exit": ("maximal_total_epochs",),
    "adaptive_compression_level": ("initial_training_phase_epochs", "patience_epochs"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyAwareParams(Section):
    """How much accuracy may be lost, and how long to try.

    Source: NNCF 2.19, "Accuracy-aware training".
    """

    maximal_relative_accuracy_degradation: float | None = option(
        None,
        "how far the accuracy may fall, in percent of the uncompressed model's; 1 if no budget is "
        "given",
    )
    maximal_absolute_accuracy_degradation: float | None = option(
        None, "how far the accuracy may fall, in its own unit: 0.02 of a fraction is 2 of percent"
    )
    maximal_total_epochs: int | None = option(
        None, "the number of epochs after which training ends, 10000 if not given", limits=_COUNT
    )
    initial_training_phase_epochs: int | None = option(
        None,
        "the number of epochs at the first level, before the search for a level begins",
        limits=Limits(minimum=0),
    )
    patience_epochs: int | None = option(
        None, "the number of epochs in which a level has to reach the accuracy", limits=_COUNT
    )
    initial_compression_rate_step: float | None = option(
        None, "the first step by which the level changes, 0.1 if not given", limits=_FRACTION
    )
    compression_rate_step_reduction_factor: float | None = option(
        None,
        "the factor of the step when its direction changes, 0.5 if not given",
        limits=_FRACTION,
    )
    lr_reduction_factor: float | None = option(
        None,
        "the factor of the learning rate when the direction changes, 0.5 if not given",
        limits=Limits(above=0, maximum=1),
    )
    minimal_compression_rate_step: float | None = option(
        None, "the smallest step, at which the search ends, 0.025 if not given", limits=_FRACTION
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the fault of having two budgets."""
        if None not in {
            self.maximal_relative_accuracy_degradation,
            self.maximal_absolute_accuracy_degradation,
        }:
            yield Fault(
                path="maximal_absolute_accuracy_degradation",
                problem="is given with 'maximal_relative_accuracy_degradation'; there is one "
                "budget. Keep one of the two.",
            )

    def least_accuracy(self, dense: float) -> float:
        """Return the lowest accuracy within the budget of a model whose accuracy was `dense`.

        >>> AccuracyAwareParams(maximal_absolute_accuracy_degradation=2).least_accuracy(70)
        68.0
        """
        if self.maximal_absolute_accuracy_degradation is not None:
            return float(dense - self.maximal_absolute_accuracy_degradation)
        relative = self.maximal_relative_accuracy_degradation
        default = 1.0
        # relative to its magnitude: a negative metric, such as a negated loss, falls away from
        # zero
        return dense - abs(dense) * (default if relative is None else relative) / 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyAwareTraining(Section):
    """Train until the accuracy has recovered, or find the level at which it can."""

    mode: Literal["early_exit", "adaptive_compression_level"] = required(
        "whether to stop as soon as the accuracy has recovered, or to search for the level"
    )
    params: AccuracyAwareParams = required("the budget, and how long to try")

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of keys that the mode requires or does not support."""
        for key in _NEEDED[self.mode]:
            if getattr(self.params, key) is None:
                yield Fault(
                    path="params",
                    problem=f"the key '{key}' is missing, which mode '{self.mode}' needs. Add it.",
                )
        for key in _ADAPTIVE if self.mode == "early_exit" else ():
            if getattr(self.params, key) is not None:
                yield Fault(
                    path=f"params.{key}",
                    problem="belongs to mode 'adaptive_compression_level'. Remove the key.",
                )
