"""`CompositeController`, which combines several controllers."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.controllers.base.composite_scheduler import CompositeScheduler
from nncfx.controllers.base.controller import Controller
from nncfx.controllers.base.stage import CompressionStage
from nncfx.controllers.base.states import check_keys
from nncfx.controllers.base.statistics import CompositeStatistics
from nncfx.network import NNCFNetwork


@final
class CompositeController(Controller):
    """Combines several controllers.

    The loss is the sum of the parts' losses. The level is the highest level of the parts, or 0
    without parts; setting it sets all parts.
    """

    def __init__(self, model: nn.Module, parts: Sequence[Controller]) -> None:
        super().__init__(model, "composite", [one for part in parts for one in part.configs])
        self._parts = {part.algorithm: part for part in parts}
        self.has_level = any(part.has_level for part in parts)
        self._watch.algorithm = ", ".join(one.algorithm for one in parts if one.needs_loss)
        composite = CompositeScheduler({one.algorithm: one.scheduler for one in parts})
        for part in parts:
            # calls of a part count as calls of the composite
            part._watch = self._watch  # noqa: SLF001 (its own parts)
            part._composite = composite  # noqa: SLF001 (its own parts)
        self.scheduler = composite

    @property
    @override
    def parts(self) -> Mapping[str, Controller]:
        return self._parts

    @override
    def _level_now(self) -> float:
        return max((part.level for part in self.parts.values()), default=0.0)

    @override
    def _target_now(self) -> float:
        return max((part.target_level for part in self.parts.values()), default=0.0)

    @override
    def _loss(self) -> Tensor:
        zero = self.compression_loss()
        losses = (part._loss() for part in self.parts.values())  # noqa: SLF001 (its own parts)
        return torch.stack([zero, *losses]).sum()

    @override
    def compression_stage(self) -> CompressionStage:
        stages = [part.compression_stage() for part in self.parts.values()]
        first = stages[0] if stages else CompressionStage.FULLY_COMPRESSED
        return functools.reduce(CompressionStage.together, stages, first)

    @override
    def _settle(self, model: NNCFNetwork) -> None:
        for part in self.parts.values():
            part._settle(model)  # noqa: SLF001 (its own parts)

    @override
    def _before_strip(self) -> None:
        for part in self.parts.values():
            part._before_strip()  # noqa: SLF001 (its own parts)

    @override
    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for part in self.parts.values():
                stack.enter_context(part.evaluating())
            yield

    @override
    def statistics(self) -> CompositeStatistics:
        parts = {name: part.statistics() for name, part in self.parts.items()}
        return CompositeStatistics(parts=parts)

    @override
    def _apply(self, level: float) -> None:
        for part in self.parts.values():
            if part.has_level:
                part.level = level

    @override
    def state_dict(self) -> dict[str, Any]:
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        return {"parts": parts, "scheduler": self.scheduler.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_keys(state, ("parts", "scheduler"), "The state of the controller")
        check_keys(state["parts"], self.parts, "The state of the controller")
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        self.scheduler.load_state_dict(state["scheduler"])
