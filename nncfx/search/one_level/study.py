"""The persisted trials of a search over one level."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.search.attempt import Attempt, attempt
from nncfx.search.journaled import Journaled, Lease
from nncfx.search.trials import JSONValue, Measurement, Stage, Trial

_LOGGER = logging.getLogger(__name__)


class Study(Journaled[Trial]):
    """The trials of one search, kept in a persistent journal.

    The journal is a text file of JSON lines. The first line is the header: format, version, and
    what must not change between runs (settings, seed, a fingerprint of model and data). Each
    further line is one trial, appended and fsync'ed as the trial ends. Opening an existing journal
    with the same header continues where it stopped; finished trials are not run again. A torn last
    line, left by a process killed while writing, is dropped (see `notes`).

    A study holds a lock on its journal until `close` (the study is a context manager).

    Attributes:
        trials: the finished trials, in order of their numbers.
        notes: repairs made while opening, one sentence each.

    Args:
        path: the journal; its folder is created. None keeps the study in memory only.
        header: identifies the search, JSON values; compared key by key on resuming.
        data: facts about the data; also compared, if the journal has some.

    Raises:
        SearchError: the journal belongs to another search, is damaged before its last line,
            was written by a newer nncfx, or is in use by another process.
        ArgumentError: the header holds something that is not a JSON value.

    >>> study = Study(None, {"seed": 0})
    >>> trial = study.run("accuracy", 0.5, lambda level: Measurement(metric=0.9, objective=level))
    >>> (trial.number, trial.state, trial.measurement.metric)
    (0, 'done', 0.9)
    """

    @override
    def _parsed(self, record: Mapping[str, JSONValue]) -> Trial:
        return Trial.from_json(dict(record))

    @override
    def _point(self, trial: Trial) -> Mapping[str, JSONValue]:
        return {"stage": trial.stage, "level": trial.level}

    def run(self, stage: Stage, level: float, evaluate: Callable[[float], Measurement]) -> Trial:
        """Evaluate `level`, append the trial to the journal, and return it.

        A trial fails if `evaluate` raises an Exception or returns a metric or an objective that is
        not finite; the failure is recorded and logged, not raised. KeyboardInterrupt and
        SystemExit propagate, and leave no trial.

        Raises:
            MachineError: memory, disk or a device failed; no trial is recorded, and the search can
                be run again.
            ArgumentError: `evaluate` returned something that cannot be recorded.
        """
        what = f"trial {len(self.trials)}, level {level:g}"
        return self.record(stage, level, attempt(lambda: evaluate(level), what))

    def record(
        self, stage: Stage, level: float, outcome: Attempt[Measurement], after: int | None = None
    ) -> Trial:
        """Append the trial of `outcome` to the journal, and return it.

        Args:
            stage: the stage of the trial.
            level: the evaluated level.
            outcome: the result of the evaluation.
            after: how many trials had ended when it started, if it ran in parallel with others.

        Raises:
            ArgumentError: its value cannot be recorded.
        """
        measurement, error = outcome.value, outcome.error
        if error is None and not isinstance(measurement, Measurement):
            raise ArgumentError(
                f"The evaluation of level {level:g} returned {measurement!r}, and a search needs "
                "metric and objective. Return nncfx.search.Measurement(metric=..., objective=...)."
            )
        if measurement is not None and not measurement.is_finite:
            error = (
                f"The evaluation returned metric {measurement.metric} and objective "
                f"{measurement.objective}; both must be finite numbers."
            )
        trial = Trial(
            number=len(self.trials),
            stage=stage,
            level=level,
            state="done" if error is None else "failed",
            measurement=measurement if error is None else None,
            error=error,
            seconds=outcome.seconds,
            started=outcome.started,
            after=after,
        )
        if error is not None:
            _LOGGER.warning("Trial %d at level %g failed: %s", trial.number, level, error)
        return self._keep(trial, f"what the evaluation of level {trial.level} returned")

    def record_lease(self, lease: Lease, outcome: Attempt[Measurement]) -> Trial:
        """Append the trial of a lease of this study; see `record`."""
        stage = cast("Stage", lease.point["stage"])
        return self.record(stage, level_of(lease.point), outcome, lease.after)


def level_of(point: Mapping[str, Any]) -> float:
    """Return the level of a point, in the format of leases of a `Study`."""
    return float(point["level"])
