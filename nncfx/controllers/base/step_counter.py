"""Where in an epoch training stands."""

from collections.abc import Mapping
from typing import Any, final

__all__ = ["StepCounter"]


@final
class StepCounter:
    """Counts optimizer steps within an epoch; the first epoch tells how many make one.

    Attributes:
        steps_per_epoch: Optimizer steps in an epoch; None until they are known.
        counting_epochs: Epochs that only tell how many steps make one: 1, or 0 if it is given.
    """

    def __init__(self, steps_per_epoch: int | None = None) -> None:
        self.steps_per_epoch = steps_per_epoch
        self.counting_epochs = int(steps_per_epoch is None)
        self._begun = 0

    @property
    def fraction(self) -> float:
        """The part of the epoch that has passed, in [0, 1]; 0 while it is not known."""
        if self.steps_per_epoch is None:
            return 0.0
        return min(max(self._begun - 1, 0) / self.steps_per_epoch, 1.0)

    def begin_epoch(self, *, is_restarted: bool = False) -> None:
        """Count anew; a whole epoch of steps, not a restarted one, tells how many make one."""
        if self.steps_per_epoch is None and self._begun > 0 and not is_restarted:
            self.steps_per_epoch = self._begun
        self._begun = 0

    def begin_step(self) -> None:
        """Count a step."""
        self._begun += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {"steps_begun": self._begun, "steps_per_epoch": self.steps_per_epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the counts of `state`."""
        self._begun = state["steps_begun"]
        self.steps_per_epoch = state["steps_per_epoch"]
