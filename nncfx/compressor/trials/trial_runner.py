"""The trials of a run: compress, recover, measure, and keep the weights."""

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from torch import nn

from nncfx.compressor.trials.candidate import CandidateFactory, CandidateModel
from nncfx.compressor.trials.side_by_side import TimedElsewhere
from nncfx.compressor.trials.trial_weights import TrialStates
from nncfx.errors import SearchError
from nncfx.evidence.formatting import number
from nncfx.lc import Recovered, Recovery, RecoveryData, StepRecord
from nncfx.narration import Narrator, SilentNarrator
from nncfx.objectives import Objective
from nncfx.schemes import nonzero_parameters
from nncfx.search import Executor, JSONValue, Measurement, Study, should_stop_early
from nncfx.storage.models.model_state import model_state

_LOGGER: Final = logging.getLogger(__name__)
_STEPS: Final = "step_metrics"


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """The plan of one trial.

    Attributes:
        place: Its name in progress messages.
        name: Of its saved weights.
        factory: Builds candidates for the scheme of the trial.
        level: The level of the scheme.
        start: The trial with whose weights recovery starts; None: the dense model's.
        finished: The journal's records of earlier trials that were successful.
    """

    place: str
    name: str
    factory: Callable[[], CandidateFactory]
    level: float
    start: "TrialPlan | None"
    finished: Sequence[Mapping[str, Any]]


@final
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Evaluates the candidates of a search.

    Attributes:
        recovery: The recovery method.
        objective: The objective.
        data: The data for recovery.
        states: Stores the weights.
        narrator: Reports progress.
        metric: The name of the metric.
        threshold: The metric that the search requires.
        reference: The metric of the dense model.
        stop_hopeless: Whether trials without prospect of the threshold end early.
        standard_error: Returns, for a model and its metric, the standard error against the dense
            model's metric; None if the budget has its own margin, and noise is ignored.
        executor: Evaluates several trials at the same time; optional.
    """

    recovery: Recovery
    objective: Objective
    data: RecoveryData
    states: TrialStates
    narrator: Narrator
    metric: str
    threshold: float
    reference: float
    stop_hopeless: bool
    standard_error: Callable[[nn.Module, float], float | None] | None = None
    executor: Executor | None = None

    def run(self, plan: TrialPlan) -> Measurement:
        """Compress as planned, recover, measure, and keep the weights."""
        try:
            measurement = self._measured(plan)
        except Exception:
            self.narrator.found(f"{plan.place}: failed")
            raise
        self.narrator.found(f"{plan.place}: {self._words(measurement)}")
        return measurement

    def begun(self, plan: TrialPlan) -> Measurement:
        """Run the part of a trial for a worker; an objective that measures time is NaN then."""
        return self._measured(plan)

    def ended(self, plan: TrialPlan, measurement: Measurement) -> Measurement:
        """Return the measurement of a worker, with an objective that this process must measure."""
        if math.isnan(measurement.objective):
            self._progress(plan)(f"measuring {self.objective.name}")
            objective = self.objective.evaluate(self.chosen(plan))
            measurement = dataclasses.replace(measurement, objective=objective)
        self.narrator.found(f"{plan.place}: {self._words(measurement)}")
        return measurement

    def for_workers(self) -> "Trials":
        """Return the same, without progress messages, for another process."""
        return dataclasses.replace(self, narrator=SilentNarrator(), executor=None)

    def dense(self, factory: CandidateFactory, journal: Study) -> Measurement:
        """Return the measurement of the dense model, from the journal if it is there."""
        if journal.trials and journal.trials[0].measurement is not None:
            self.narrator.found(f"continuing after {len(journal.trials) - 1} trials")
            return journal.trials[0].measurement
        self.narrator.now(f"measuring {self.objective.name} of the dense model")
        candidate = factory.uncompressed()
        dense = Measurement(
            metric=self.data.validate(factory.dense),
            objective=self.objective.evaluate(candidate),
            details=_counts(candidate),
        )
        self.narrator.found(f"dense: {self._words(dense)}{factory.timer.told(self.objective)}")
        return dense

    def chosen(self, plan: TrialPlan) -> CandidateModel:
        """Return the candidate of a trial; if its weights are lost, the trial is run again."""
        factory = plan.factory()
        return factory.candidate(self._compressed(plan, factory))

    def _compressed(self, plan: TrialPlan, factory: CandidateFactory) -> nn.Module:
        """Return the compressed model of a trial, from its weights or by running it again."""
        try:
            return factory.with_state(self.states.load(plan.name))
        except SearchError as error:
            self.narrator.found(f"{plan.place}: compressed again, since its weights are lost")
            _LOGGER.warning("%s: compressed again. %s", plan.place, error)
            return self._recovered(plan, plan.factory()).compressed

    def _recovered(self, plan: TrialPlan, factory: CandidateFactory) -> Recovered:
        """Compress as planned, recover, and keep the weights."""
        data = dataclasses.replace(self.data, progress=self._progress(plan))
        data.progress("compressing")
        start = factory.dense
        if plan.start is not None:
            start = factory.decompressed(self._compressed(plan.start, factory))
        if self.stop_hopeless:
            data = dataclasses.replace(data, stop=lambda steps: self._stop(steps, plan.finished))
        recovered = self.recovery.recover(start, factory.scheme, plan.level, data)
        self.states.save(plan.name, model_state(recovered.compressed))
        return recovered

    def _progress(self, plan: TrialPlan) -> Callable[[str], None]:
        return lambda text: self.narrator.step(f"{plan.place}: {text}")

    def _measured(self, plan: TrialPlan) -> Measurement:
        factory = plan.factory()
        recovered = self._recovered(plan, factory)
        self._progress(plan)(f"measuring {self.objective.name}")
        candidate = factory.candidate(recovered.compressed)
        metrics = [record.metric for record in recovered.history]
        details: dict[str, JSONValue] = {**_counts(candidate), _STEPS: list[JSONValue](metrics)}
        # step 0 of every recovery compresses without training: directly, if it started from dense
        start = plan.start
        details |= {"direct_metric": metrics[0]} if start is None else {"start": start.name}
        error = None
        if self.standard_error is not None:
            error = self.standard_error(recovered.model, recovered.metric)
        return Measurement(
            metric=recovered.metric,
            objective=self._objective(candidate),
            details=details,
            standard_error=error,
        )

    def _objective(self, candidate: CandidateModel) -> float:
        try:
            return self.objective.evaluate(candidate)
        except TimedElsewhere:
            return math.nan

    def _words(self, measurement: Measurement) -> str:
        objective = self.objective
        return (
            f"{self.metric} {measurement.metric:.4f}, "
            f"{objective.name} {number(measurement.objective)} {objective.unit}"
        ).rstrip()

    def _stop(self, steps: Sequence[StepRecord], finished: Sequence[Mapping[str, Any]]) -> bool:
        return should_stop_early(
            [record.metric for record in steps],
            # journals of nncfx 0.1 do not have steps
            [trial[_STEPS] for trial in finished if _STEPS in trial],
            threshold=self.threshold,
            reference=self.reference,
        )


def _counts(candidate: CandidateModel) -> dict[str, JSONValue]:
    """Return what a journal records about a candidate, for any objective."""
    return {
        "parameters": candidate.parameters(),
        "nonzero": nonzero_parameters(candidate.compressed),
        "macs": candidate.macs(),
        "footprint_bytes": candidate.footprint_bytes(),
    }
