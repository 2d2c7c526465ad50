"""Judges models against the dense one: the noise of a trial, and the loss of the winner."""

import functools
import math
from typing import Final, final

from torch import nn

from nncfx.compressor.evaluation.metrics import Metric, metric_name, metric_value
from nncfx.compressor.evaluation.paired_comparison import loss_of, reads_data
from nncfx.compressor.evaluation.validation_data import Validation, examples_in
from nncfx.errors import ArgumentError
from nncfx.evidence.judgement import Judgement

__all__ = ["Judge"]

_DOUBT: Final = 0.05


@final
class Judge:
    """Counts what models lose, on the data that choose and on those that judge.

    Args:
        dense: the model that budgets count from.
        metric: what is counted; higher is better.
        validation: the data.
        budget: how far the metric may fall.

    Raises:
        ArgumentError: the metric of the dense model is not finite on the data that choose.
    """

    def __init__(
        self, dense: nn.Module, metric: Metric, validation: Validation, budget: float
    ) -> None:
        self._dense, self._metric, self._validation = dense, metric, validation
        self._budget = budget
        self.reference = self.metric_of(dense)
        if not math.isfinite(self.reference):
            raise ArgumentError(
                f"The metric '{metric_name(metric)}' of the dense model is {self.reference}, and "
                "no budget can be counted from that. Mend the metric or the model.",
            )

    def metric_of(self, model: nn.Module) -> float:
        """Return the metric on the data that choose."""
        return metric_value(self._metric, model, self._validation.chooses)

    def standard_error(self, model: nn.Module) -> float | None:
        """Return that of `metric_of(model)` against the dense model's; None if it is not known."""
        if not self._reads_data:
            return None
        found = loss_of(model, self._dense, self._metric, self._validation.chooses)
        return None if found is None else found.cautious_error

    @functools.cached_property
    def dense_metric(self) -> float:
        """The metric of the dense model on the data that judge."""
        return metric_value(self._metric, self._dense, self._validation.judges)

    def judgement(self, model: nn.Module, judged: int) -> tuple[Judgement, float]:
        """Return what the data that judge say of `model`, and its metric on them.

        Args:
            model: a winner.
            judged: how many winners were judged, this one included.
        """
        validation = self._validation
        value = metric_value(self._metric, model, validation.judges)
        confidence = 1 - _DOUBT / judged
        found = (
            loss_of(model, self._dense, self._metric, validation.judges)
            if self._reads_data
            else None
        )
        return Judgement(
            loss=self.dense_metric - value,
            interval=None if found is None else found.interval(confidence),
            confidence=confidence,
            budget=self._budget,
            examples=self._examples,
            held_out=validation.held_out and self._reads_data,
            data=validation.data,
            judged=judged,
        ), value

    @functools.cached_property
    def _examples(self) -> int:
        return examples_in(self._validation.judges)

    @functools.cached_property
    def _reads_data(self) -> bool:
        return reads_data(self._metric, self._dense, self.reference)
