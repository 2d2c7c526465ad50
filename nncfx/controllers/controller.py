"""Controllers: the handles of applied algorithms."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import AlgorithmConfig
from nncfx.controllers.losses import CompressionLoss, ZeroLoss
from nncfx.controllers.schedulers import CompositeScheduler, Scheduler
from nncfx.controllers.states import check_keys
from nncfx.controllers.statistics import CompositeStatistics, Statistics
from nncfx.errors import ArgumentError
from nncfx.schemes.masks import check_level

__all__ = ["CompositeController", "Controller"]


class Controller(abc.ABC):
    """The handle of an algorithm that was applied to a model.

    Attributes:
        model: The wrapped model.
        algorithm: The name of the algorithm, as the config spells it.
        configs: The configs of the algorithms behind this handle, scopes merged in.
        scheduler: Sets the level while training goes on; each algorithm puts its own here.
        compression_loss: What the algorithm adds to the loss of the task.
    """

    scheduler: Scheduler

    def __init__(
        self,
        model: nn.Module,
        algorithm: str,
        configs: Sequence[AlgorithmConfig],
    ) -> None:
        self.model = model
        self.algorithm = algorithm
        self.configs = tuple(configs)
        self.compression_loss: CompressionLoss = ZeroLoss(model)
        self._level = 0.0

    @property
    def level(self) -> float:
        """How strongly the model is compressed, in [0, 1).

        Setting it computes the masks anew, even if the number stays the same.

        Raises:
            ArgumentError: when set to a number that is not in [0, 1).
        """
        return self._level_now()

    @level.setter
    def level(self, level: float) -> None:
        level = check_level(level)
        self._apply(level)
        self._level = level

    def _level_now(self) -> float:
        return self._level

    def loss(self) -> Tensor:
        """Return the scalar to add to the loss of the task, once per step."""
        return self.compression_loss()

    @abc.abstractmethod
    def statistics(self) -> Statistics:
        """Return what has been done to the model so far."""

    @abc.abstractmethod
    def _apply(self, level: float) -> None:
        """Bring the model to `level`, a number in [0, 1)."""

    def state_dict(self) -> dict[str, Any]:
        """Return level and scheduler as plain values; masks are in the model's `state_dict`."""
        return {
            "algorithm": self.algorithm,
            "level": self.level,
            "scheduler": self.scheduler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take level and scheduler of `state` without touching the masks.

        Load the model's `state_dict` as well: it holds the masks that belong to this level.

        Raises:
            StorageError: `state` is not one of this algorithm and schedule.
        """
        source = f"The state of '{self.algorithm}'"
        check_keys(state, ("algorithm", "level", "scheduler"), source)
        if state["algorithm"] != self.algorithm:
            check_keys({state["algorithm"]: None}, (self.algorithm,), "The controller's state")
        self.scheduler.load_state_dict(state["scheduler"])
        self._level = check_level(state["level"])


@final
class CompositeController(Controller):
    """Several controllers as one.

    The loss is the sum of the parts' losses. The level is the highest level of the parts, 0
    without any; setting it sets every part.

    Attributes:
        parts: The controllers by algorithm.
    """

    def __init__(self, model: nn.Module, parts: Sequence[Controller]) -> None:
        super().__init__(model, "composite", [one for part in parts for one in part.configs])
        self.parts = {part.algorithm: part for part in parts}
        schedulers = {name: part.scheduler for name, part in self.parts.items()}
        self.scheduler = CompositeScheduler(schedulers)

    def __getitem__(self, algorithm: str) -> Controller:
        """Return the controller of `algorithm`.

        Raises:
            ArgumentError: it was not applied.
        """
        if algorithm not in self.parts:
            raise ArgumentError(
                f"The model carries no '{algorithm}'; it carries {sorted(self.parts)}. Name one "
                "of these.",
            )
        return self.parts[algorithm]

    @override
    def _level_now(self) -> float:
        return max((part.level for part in self.parts.values()), default=0.0)

    @override
    def loss(self) -> Tensor:
        zero = self.compression_loss()
        return torch.stack([zero, *(part.loss() for part in self.parts.values())]).sum()

    @override
    def statistics(self) -> CompositeStatistics:
        parts = {name: part.statistics() for name, part in self.parts.items()}
        return CompositeStatistics(parts=parts)

    @override
    def _apply(self, level: float) -> None:
        for part in self.parts.values():
            part.level = level

    @override
    def state_dict(self) -> dict[str, Any]:
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        return {"parts": parts, "scheduler": self.scheduler.state_dict()}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_keys(state, ("parts", "scheduler"), "The state of the controller")
        check_keys(state["parts"], self.parts, "The state of the controller")
        self.scheduler.load_state_dict(state["scheduler"])
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
