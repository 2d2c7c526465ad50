"""Two models on the same data: how far apart their metrics are, and how surely."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from nncfx.compressor.evaluation.examples import batch_size
from nncfx.compressor.evaluation.metrics import Metric, accuracy, metric_value, right_answers
from nncfx.errors import ArgumentError
from nncfx.search import Difference, paired_difference

__all__ = ["loss_of", "reads_data"]


def loss_of(
    model: nn.Module, dense: nn.Module, metric: Metric, batches: Iterable[Any]
) -> Difference | None:
    """Return by how much the metric of `model` is below that of `dense`, on the same batches.

    Both see a batch before the next is read, so that batches may come in any order. Accuracy is
    compared example by example; another metric batch by batch, weighted by examples.

    Returns:
        The difference, positive where the model is worse; None where the metric cannot be taken
        of a batch alone, or there are fewer than two of what is compared.
    """
    differences: list[float] = []
    weights: list[float] = []
    for batch in batches:
        if metric is accuracy:
            found = _by_example(model, dense, batch)
        else:
            try:
                found = [metric_value(metric, one, [batch]) for one in (dense, model)]
            except ArgumentError:
                return None
            found = [found[0] - found[1]]
        differences += found
        weights += [_weight(batch, len(found))] * len(found)
    if len(differences) < 2 or not all(map(math.isfinite, differences)):  # noqa: PLR2004 (no spread)
        return None
    return paired_difference(differences, weights=weights, of_shares=metric is accuracy)


def reads_data(metric: Metric, model: nn.Module, value: float) -> bool:
    """Say whether a metric looks at the batches that it is given, `value` being that of some.

    One that judges by data of its own says the same without any.
    """
    try:
        return metric_value(metric, model, []) != value
    except ArgumentError:
        return True


def _by_example(model: nn.Module, dense: nn.Module, batch: tuple[Any, Any]) -> list[float]:
    """Return dense less compressed of each example, the mean over its positions."""
    before, after = (right_answers(one, batch).to(torch.float64) for one in (dense, model))
    # an example without positions is one position
    found: list[float] = (before - after).reshape(len(before), -1).mean(1).tolist()
    return found


def _weight(batch: tuple[Any, Any], units: int) -> float:
    """Return how much a unit of the batch counts: as accuracy counts targets, by its number."""
    targets = batch[1]
    if isinstance(targets, torch.Tensor) and targets.numel():
        return targets.numel() / units
    return batch_size(batch[0]) / units
