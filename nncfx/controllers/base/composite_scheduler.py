"""The scheduler of several algorithms on one model."""

from collections.abc import Mapping
from typing import Any, final

from typing_extensions import override

from nncfx.controllers.base.schedulers import Scheduler
from nncfx.controllers.base.states import check_keys


@final
class CompositeScheduler(Scheduler):
    """Passes every call on to the schedulers of several algorithms.

    Attributes:
        parts: The schedulers by algorithm.
    """

    def __init__(self, parts: Mapping[str, Scheduler]) -> None:
        super().__init__()
        self.parts: dict[str, Scheduler] = {}
        for name, part in parts.items():
            self.put(name, part)

    def put(self, name: str, part: Scheduler) -> None:
        """Pass calls on to `part`, the scheduler of the algorithm `name`."""
        # the composite is watched instead
        part.watch = None
        self.parts[name] = part

    def go_on_from(self, part: Scheduler) -> None:
        """Take over the counts of `part`, which was loaded on its own."""
        self.current_epoch, self.current_step = part.current_epoch, part.current_step

    @property
    @override
    def level(self) -> float:
        """The highest level of the parts; 0 without parts."""
        return max((part.level for part in self.parts.values()), default=0.0)

    @property
    @override
    def final_level(self) -> float:
        """The highest final level of the parts; 0 without parts."""
        return max((part.final_level for part in self.parts.values()), default=0.0)

    @override
    def hold(self) -> None:
        """Hold every part; they continue counting."""
        for part in self.parts.values():
            part.hold()

    @override
    def state_dict(self) -> dict[str, Any]:
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        return super().state_dict() | {"parts": parts}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        check_keys(state["parts"], self.parts, "The state of the schedulers")
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])

    @override
    def _on_epoch(self) -> None:
        for part in self.parts.values():
            part.epoch_step(self.current_epoch)

    @override
    def _on_step(self) -> None:
        for part in self.parts.values():
            part.step(self.current_step)
