"""Judges models against the dense one: the noise of a trial, and the loss of the winner."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, final

from torch import nn

from nncfx.compressor.evaluation.metrics import Metric, finite_metric, metric_value
from nncfx.compressor.evaluation.paired_comparison import loss_of, reads_data
from nncfx.compressor.evaluation.validation_data import Validation, total_examples
from nncfx.evidence.judgement import Judgement
from nncfx.search import Difference

_DOUBT: Final = 0.05


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """Measures the loss of models, on the data that choose and on those that judge.

    Attributes:
        dense: The reference of the budget.
        metric: The metric; higher is better.
        validation: The data.
        budget: How far the metric may fall.
        reference: The metric of `dense` on the data that choose.
    """

    dense: nn.Module
    metric: Metric
    validation: Validation
    budget: float
    reference: float

    def metric_of(self, model: nn.Module) -> float:
        """Return the metric on the data that choose; `dense` is measured once."""
        if model is self.dense:
            return self.reference
        return metric_value(self.metric, model, self.validation.chooses)

    def standard_error(self, model: nn.Module, value: float) -> float | None:
        """Return the standard error of `value` against the dense model's metric; None if unknown.

        Args:
            model: the model of a trial.
            value: `metric_of(model)`.
        """
        found = self._loss(model, self.validation.chooses, self.reference - value)
        return None if found is None else found.cautious_error

    @functools.cached_property
    def dense_metric(self) -> float:
        """The metric of the dense model on the data that judge."""
        return finite_metric(self.metric, self.dense, self.validation.judges, "dense")

    def judgement(self, model: nn.Module, judged: int) -> tuple[Judgement, float]:
        """Return the judgement of `model` on the data that judge, and its metric on them.

        Args:
            model: a winner.
            judged: how many winners were judged, including this one.
        """
        validation = self.validation
        value = metric_value(self.metric, model, validation.judges)
        loss, confidence = self.dense_metric - value, 1 - _DOUBT / judged
        found = self._loss(model, validation.judges, loss)
        return Judgement(
            loss=loss,
            interval=None if found is None else found.interval(confidence),
            confidence=confidence,
            budget=self.budget,
            examples=self._examples,
            held_out=validation.held_out and self._reads_data,
            data=validation.data,
            judged=judged,
        ), value

    def _loss(self, model: nn.Module, batches: Iterable[Any], loss: float) -> Difference | None:
        if not self._reads_data:
            return None
        return loss_of(model, self.dense, self.metric, batches, loss=loss)

    @functools.cached_property
    def _examples(self) -> int:
        return total_examples(self.validation.judges)

    @functools.cached_property
    def _reads_data(self) -> bool:
        return reads_data(self.metric, self.dense, self.reference)


def judge_against(
    dense: nn.Module, metric: Metric, validation: Validation, budget: float
) -> Judge:
    """Return a judge of models against `dense`, which it measures.

    Raises:
        ArgumentError: the metric of the dense model is not finite on the data that choose.
    """
    reference = finite_metric(metric, dense, validation.chooses, "dense")
    return Judge(
        dense=dense, metric=metric, validation=validation, budget=budget, reference=reference
    )
