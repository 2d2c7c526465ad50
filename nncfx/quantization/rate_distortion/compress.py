"""Find the smallest file within an accuracy budget, or the best model within a size."""

import dataclasses
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from nncfx.controllers.loops.batch_norm_adaptation import Forward
from nncfx.errors import ArgumentError, CompressionError
from nncfx.quantization.budgets import Bytes, Evaluate, Points, check_budget, metric_of
from nncfx.quantization.ranges.calibration import first_examples
from nncfx.quantization.rate_distortion.coded_model import Coder
from nncfx.quantization.rate_distortion.curvature import measure_curvature
from nncfx.storage import SavedFile, absorb_norm_statistics
from nncfx.storage.models.model_file import file_bytes, save
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.model_copy import copy_of

_FIRST_NOISE: Final = 0.01
"""Start of the search: squared error of the outputs as a share of their squares."""
_FACTOR: Final = 4.0
"""Factor between rates until there is one on each side of the budget."""
_MATCHED: Final = 256
"""Examples on which outputs are matched."""
_CLOSE: Final = 0.005
"""A file is close enough to its budget of bytes if it is smaller by at most this share."""


@dataclass(frozen=True)
class RatePoint:
    """One model that was tried.

    Attributes:
        rate: Loss, as a share of the squared outputs, that each bit had to save.
        size_bytes: Size of its file.
        metric: The result of `evaluate`; None if it was not called.
    """

    rate: float
    size_bytes: int
    metric: float | None


@dataclass(frozen=True, eq=False)
class CompressedModel:
    """The result of `compress`.

    Attributes:
        model: A copy in which each parameter is integers times one step. It runs and trains like
            any other model.
        chosen: The point of `model`.
        curve: All models that were tried, by size.
        dense_metric: The metric of the original model; None without `evaluate`.
    """

    model: nn.Module
    chosen: RatePoint
    curve: tuple[RatePoint, ...]
    dense_metric: float | None

    def save(self, path: str | os.PathLike[str]) -> SavedFile:
        """Write the model as `nncfx.storage.save` does; the file has `chosen.size_bytes`."""
        return save(path, self.model)

    def to_str(self) -> str:
        """Return the curve as a text table."""
        rows = ["     bytes   metric   rate"]
        for one in self.curve:
            metric = "-" if one.metric is None else f"{one.metric:.2f}"
            mark = "*" if one == self.chosen else " "
            rows.append(f"{mark}{one.size_bytes:>9,} {metric:>8}   {one.rate:.1e}")
        return "\n".join(rows)


def compress(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    budget: Points | Bytes,
    evaluate: Evaluate | None = None,
    forward: Forward | None = None,
    trials: int = 8,
) -> CompressedModel:
    """Return `model` with its weights rounded such that its `.nncfx` file fits `budget`.

    Nothing is trained. Each weight is rounded to a multiple of its tensor's step; the choice
    weighs the effect of the error on the outputs against the cost of the integer in bits. Later
    weights of a row compensate the errors of earlier ones, and norms and biases the rest. A
    single number, the loss that a bit is worth, applies to all tensors and is searched for.

    Args:
        model: Any model without hooks; not changed.
        batches: Typical inputs, in the form that `adapt_batch_norms` takes; a few hundred
            examples, which are held in memory. Labels are ignored.
        budget: `Points(0.5)`: the smallest file whose metric is at most 0.5 lower; or
            `Bytes(200_000)`: the model with the least loss in a file of at most that size.
        evaluate: Returns the metric of a model, higher is better; required for `Points`. With
            `Bytes`, the result and the dense model are evaluated once.
        forward: Calls the model with a batch.
        trials: Most models that are tried.

    Raises:
        ArgumentError: `budget`, `trials` or `batches` are invalid, or `evaluate` is missing.
        CompressionError: no model that was tried is within the budget.
    """
    _check(model, budget, evaluate, trials)
    held = list(batches)
    work = copy_of(model).eval()
    absorb_norm_statistics(work)
    curvature = measure_curvature(work, held, forward=forward)
    coder = Coder(work, curvature, list(first_examples(held, _MATCHED)), forward)
    weights = sum(one.numel() for one in work.parameters())
    dense = None if evaluate is None else metric_of(evaluate, work)
    search = _Search(coder, budget, evaluate, dense)
    search.run(2 * math.log(2) * _FIRST_NOISE / max(1, weights), trials)
    best, point = search.best()
    return CompressedModel(
        model=best.train(model.training),
        chosen=point,
        curve=tuple(sorted(search.points, key=lambda one: one.size_bytes)),
        dense_metric=dense,
    )


def _check(model: nn.Module, budget: object, evaluate: Evaluate | None, trials: int) -> None:
    require_whole(model, "compressed", CompressionError)
    check_budget(budget, evaluate, "a file")
    if trials < 1:
        raise ArgumentError(f"trials is {trials}; at least 1 model has to be tried.")


class _Search:
    """Bisects the logarithm of the rate between one within the budget and one outside it."""

    def __init__(
        self, coder: Coder, budget: Points | Bytes, evaluate: Evaluate | None, dense: float | None
    ) -> None:
        self._coder = coder
        self._budget = budget
        self._evaluate = evaluate
        self._dense = dense
        self._best: tuple[nn.Module, RatePoint] | None = None
        self.points: list[RatePoint] = []

    def run(self, rate: float, trials: int) -> None:
        """Try up to `trials` models, the first at `rate`."""
        # a higher rate gives a smaller file, which fits Bytes better and Points worse
        low, high = 0.0, math.inf
        for _ in range(trials):
            point, fits = self._try(rate)
            if fits == isinstance(self._budget, Points):
                low = rate
            else:
                high = rate
            if self._is_close(point, fits) or (low and high / low < 1 + _CLOSE):
                return
            rate = self._next(low, high)

    def _next(self, low: float, high: float) -> float:
        if not low:
            return high / _FACTOR
        if high == math.inf:
            return low * _FACTOR
        share = 0.5
        if isinstance(self._budget, Bytes):  # sizes are smooth in the logarithm of the rate
            sizes = {one.rate: math.log(one.size_bytes) for one in self.points}
            wanted = math.log((1 - _CLOSE / 2) * self._budget.size_bytes)
            share = (sizes[low] - wanted) / max(sizes[low] - sizes[high], _CLOSE)
        return low * math.pow(high / low, min(max(share, 0.1), 0.9))

    def _try(self, rate: float) -> tuple[RatePoint, bool]:
        model = self._coder.rounded(rate).model
        size = len(file_bytes(model))
        asked = isinstance(self._budget, Points) and self._evaluate is not None
        metric = metric_of(self._evaluate, model) if asked and self._evaluate else None
        point = RatePoint(rate, size, metric)
        self.points.append(point)
        fits = self._fits(point)
        if fits and (self._best is None or self._is_better(point, self._best[1])):
            self._best = model, point
        return point, fits

    def _fits(self, point: RatePoint) -> bool:
        if isinstance(self._budget, Bytes):
            return point.size_bytes <= self._budget.size_bytes
        assert point.metric is not None  # noqa: S101 (points are evaluated)
        assert self._dense is not None  # noqa: S101
        return point.metric >= self._dense - self._budget.drop

    def _is_better(self, point: RatePoint, best: RatePoint) -> bool:
        if isinstance(self._budget, Bytes):
            return point.rate < best.rate
        return point.size_bytes < best.size_bytes

    def _is_close(self, point: RatePoint, fits: bool) -> bool:
        if not isinstance(self._budget, Bytes):
            return False
        return fits and point.size_bytes >= (1 - _CLOSE) * self._budget.size_bytes

    def best(self) -> tuple[nn.Module, RatePoint]:
        """Return the best model within the budget, and its point.

        Raises:
            CompressionError: no model is within the budget.
        """
        if self._best is None:
            tried = "; ".join(
                f"{one.size_bytes} bytes" + ("" if one.metric is None else f" at {one.metric:g}")
                for one in self.points
            )
            whole = "" if self._dense is None else f" The model as it was has {self._dense:g}."
            raise CompressionError(
                f"No model is within the budget of {self._budget}; {tried} were tried.{whole} "
                "Allow more, or raise trials."
            )
        model, point = self._best
        if point.metric is None and self._evaluate is not None:
            measured = dataclasses.replace(point, metric=metric_of(self._evaluate, model))
            self.points[self.points.index(point)] = measured
            return model, measured
        return model, point
