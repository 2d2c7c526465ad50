"""Losses that algorithms add to the loss of the task."""

import abc
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override


class CompressionLoss(abc.ABC):
    """A loss that an algorithm adds to the loss of the task; called once per step."""

    @abc.abstractmethod
    def __call__(self) -> Tensor:
        """Return a scalar on the model's device."""


@final
class ZeroLoss(CompressionLoss):
    """The zero loss of an algorithm that adds no loss.

    Attributes:
        model: The model whose first parameter determines the device.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @override
    def __call__(self) -> Tensor:
        """Return zero, on the device of the model's first parameter."""
        first = next(self.model.parameters(), None)
        return torch.zeros((), device=None if first is None else first.device)
