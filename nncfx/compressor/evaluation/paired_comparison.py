"""Compares two models on the same data: the difference of their metrics, and its error."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from nncfx.compressor.evaluation.metrics import (
    Metric,
    accuracy,
    counted,
    metric_value,
    right_answers,
)
from nncfx.errors import ArgumentError
from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.search import Difference, paired_difference

# How a metric grows if it sees a batch twice: not at all for a mean, a root or an F1 score.
_MEAN: Final = 1.0
_SUM: Final = 2.0


def loss_of(
    model: nn.Module, dense: nn.Module, metric: Metric, batches: Iterable[Any], *, loss: float
) -> Difference | None:
    """Return how much the metric of `model` is below that of `dense`, with its error.

    Both see a batch before the next is read, so batches can come in any order. Accuracy is
    compared example by example. Any other metric is compared batch by batch: each batch estimates
    the total or, if the metric is a sum, its part of it.

    Args:
        model: the compressed model.
        dense: the reference.
        metric: higher is better.
        batches: the data of both metrics.
        loss: metric of `dense` minus that of `model` on all batches.

    Returns:
        The difference, `loss` on the batches, positive if the model is worse; None if the metric
        cannot be computed on a single batch, grows with the data but is not a sum, or fewer than
        two differences are available.

    Source: Wolter, Introduction to Variance Estimation, 2nd edition, 2007, section 2.2: random
        groups, here the batches, around the overall estimate.
    """
    differences: list[float] = []
    weights: list[float] = []
    growth = _MEAN if metric is accuracy else None
    for batch in batches:
        if metric is accuracy:
            found, counts = _by_example(model, dense, batch)
        else:
            try:
                before, after = (metric_value(metric, one, [batch]) for one in (dense, model))
                if growth is None and before != 0:
                    growth = round(metric_value(metric, dense, [batch, batch]) / before, 3)
            except ArgumentError:
                return None
            found, counts = [before - after], [_targets_in(batch)]
        differences += found
        weights += counts
    count = len(differences)
    is_told = growth in (_MEAN, _SUM) and all(map(math.isfinite, [loss, *differences]))
    if count < 2 or not is_told:  # noqa: PLR2004 (no spread)
        return None
    if growth == _SUM:
        parts = paired_difference([count * difference for difference in differences])
    else:
        parts = paired_difference(differences, weights=weights, of_shares=metric is accuracy)
    bias = (loss - parts.mean) / math.sqrt(count - 1)
    return replace(parts, mean=loss, standard_error=math.hypot(parts.standard_error, bias))


def reads_data(metric: Metric, model: nn.Module, value: float) -> bool:
    """Return whether a metric uses the batches that it is given; `value` is its result on some.

    A metric with its own data returns the same value without any batches.
    """
    try:
        return metric_value(metric, model, []) != value
    except ArgumentError:
        return True


def _by_example(
    model: nn.Module, dense: nn.Module, batch: tuple[Any, Any]
) -> tuple[list[float], list[float]]:
    """Return dense minus compressed for each example, the mean over the targets that count.

    Returns:
        The differences, and the number of targets of each; examples without any are left out.
    """
    before, after = (right_answers(one, batch) for one in (dense, model))
    # an example without positions is one position, and a batch can be empty
    counts, lost = (
        one.unsqueeze(-1).flatten(1).sum(1) for one in (counted(batch[1]), before - after)
    )
    kept = counts > 0
    return (lost[kept] / counts[kept]).tolist(), counts[kept].tolist()


def _targets_in(batch: tuple[Any, Any]) -> float:
    """Return the weight of a batch: its number of targets, as in accuracy."""
    targets = batch[1]
    if isinstance(targets, torch.Tensor) and targets.numel():
        return targets.numel()
    return examples_in(batch[0])
