"""Metrics of a model on labelled data: what an accuracy budget is counted in."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch

from nncfx.errors import ArgumentError
from nncfx.tracing import run

__all__ = ["Metric", "accuracy"]

Metric: TypeAlias = Callable[[torch.nn.Module, Iterable[Any]], float]
"""From a model and an iterable of `(inputs, targets)` to a number; higher is better."""


def accuracy(model: torch.nn.Module, loader: Iterable[Any]) -> float:
    """Return the fraction of examples that `model` classifies right (top-1), in [0, 1].

    The model is put into eval mode for the count and back afterwards. Outputs are scores of
    shape `n x classes`, targets class numbers of shape `n`.

    Raises:
        ArgumentError: the loader is empty.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    was_training = model.training
    model.eval()
    right, total = 0, 0
    try:
        with torch.no_grad():
            for inputs, targets in loader:
                scores = run(model, _to(inputs, device))
                right += int((scores.argmax(dim=1) == targets.to(device)).sum())
                total += len(targets)
    finally:
        model.train(was_training)
    if total == 0:
        raise ArgumentError(
            "The loader gave no example, so there is no accuracy. A generator is used up after "
            "one pass: pass a list or a DataLoader.",
        )
    return right / total


def _to(inputs: Any, device: torch.device) -> Any:  # noqa: ANN401 (inputs of any form)
    if isinstance(inputs, torch.Tensor):
        return inputs.to(device)
    if isinstance(inputs, dict):
        return {key: _to(value, device) for key, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_to(value, device) for value in inputs)
    return inputs
