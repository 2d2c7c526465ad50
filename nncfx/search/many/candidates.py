"""The persisted trials of a search over several dimensions."""

import dataclasses
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.json_codec import encode
from nncfx.search.attempt import Attempt, attempt
from nncfx.search.journaled import Journaled
from nncfx.search.many.space import Candidate, Space
from nncfx.search.trials import Count, JSONValue, Seconds, State, check_ended, read_line

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateTrial:
    """The evaluation of one candidate, as stored in the journal.

    Attributes:
        number: position in the study, from 0.
        candidate: a value for each dimension.
        state: "done", or "failed" when the evaluation raised or was not finite.
        outcomes: the measured values, by name; None for a failed trial.
        error: why the trial failed ("ErrorType: message"); None for a done one.
        seconds: wall-clock duration of the evaluation.
        started: when it started, ISO 8601 in UTC.
        after: how many trials had ended when it started, if trials run in parallel; None: all
            earlier ones.
    """

    number: int
    candidate: Candidate
    state: State
    outcomes: Mapping[str, float] | None
    error: str | None
    seconds: Seconds
    started: str
    after: Count | None = None

    def __post_init__(self) -> None:
        check_ended(self.state, self.outcomes, self.error)

    def to_json(self) -> dict[str, JSONValue]:
        """Return the trial as the JSON object for a journal line."""
        written: dict[str, JSONValue] = encode(self, omit="defaults")
        return written

    @staticmethod
    def from_json(record: Mapping[str, JSONValue]) -> "CandidateTrial":
        """Return the trial that `to_json` wrote.

        Raises:
            ArgumentError: a key is missing or unknown, or a value has the wrong type.
        """
        return read_line(CandidateTrial, record)


class CandidateStudy(Journaled[CandidateTrial]):
    """The trials of one search over several dimensions, kept in a journal like a `Study`'s.

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
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        header: Mapping[str, JSONValue] | None = None,
        data: Mapping[str, JSONValue] | None = None,
    ) -> None:
        super().__init__(path, {"kind": "candidates", **(header or {})}, data)

    @override
    def _parsed(self, record: Mapping[str, JSONValue]) -> CandidateTrial:
        return CandidateTrial.from_json(record)

    @override
    def _point(self, trial: CandidateTrial) -> Mapping[str, JSONValue]:
        return dict(trial.candidate)

    def run(
        self,
        candidate: Candidate,
        names: Iterable[str],
        evaluate: Callable[[Candidate], Mapping[str, float]],
    ) -> CandidateTrial:
        """Evaluate `candidate`, append the trial to the journal, and return it.

        A trial fails if `evaluate` raises an Exception or an outcome is not finite; the failure is
        recorded and logged, not raised.

        Raises:
            MachineError: memory, disk or a device failed; no trial is recorded, and the search can
                be run again.
            ArgumentError: the evaluation did not return a number for one of `names`.
        """
        what = f"trial {len(self.trials)} at {dict(candidate)}"
        return self.record(candidate, names, attempt(lambda: evaluate(dict(candidate)), what))

    def record(
        self,
        candidate: Candidate,
        names: Iterable[str],
        outcome: Attempt[Mapping[str, float]],
        after: int | None = None,
    ) -> CandidateTrial:
        """Append the trial of `outcome` to the journal, and return it.

        Args:
            candidate: the evaluated candidate.
            names: of the required outcomes.
            outcome: the result of the evaluation.
            after: how many trials had ended when it started, if it ran in parallel with others.

        Raises:
            ArgumentError: there is no number for one of `names`.
        """
        outcomes = None if outcome.error else _numbers(outcome.value, names)
        error = outcome.error
        if outcomes is not None and not all(map(math.isfinite, outcomes.values())):
            error = f"The evaluation returned {outcomes}; all outcomes must be finite numbers."
        trial = CandidateTrial(
            number=len(self.trials),
            candidate=dict(candidate),
            state="done" if error is None else "failed",
            outcomes=outcomes if error is None else None,
            error=error,
            seconds=outcome.seconds,
            started=outcome.started,
            after=after,
        )
        if error is not None:
            _LOGGER.warning("Trial %d at %s failed: %s", trial.number, trial.candidate, error)
        return self._keep(trial, f"what the evaluation of {trial.candidate} returned")


def candidate_of(point: Mapping[str, Any]) -> Candidate:
    """Return the candidate of a point, in the format of leases of a `CandidateStudy`."""
    return dict(point)


def nearest_trial(
    trials: Iterable[CandidateTrial], candidate: Candidate, space: Space
) -> CandidateTrial | None:
    """Return the done trial nearest to `candidate` in the unit cube of `space`.

    For a warm start, recovery of `candidate` can begin with its weights. Returns the earliest of
    equally near trials; None if no trial is done.
    """
    point = space.encode(candidate)
    done = [trial for trial in trials if trial.outcomes is not None]
    return min(
        done, key=lambda trial: math.dist(space.encode(trial.candidate), point), default=None
    )


def _numbers(value: object, names: Iterable[str]) -> dict[str, float]:
    wanted = list(names)
    try:
        found = dict(cast("Mapping[str, Any]", value))
        return {name: float(found.pop(name)) for name in wanted} | {
            name: float(extra) for name, extra in found.items()
        }
    except (TypeError, ValueError, KeyError) as error:
        raise ArgumentError(
            f"The evaluation returned {value!r}, and this search needs a number for each of "
            f"{', '.join(wanted)}. Return a dict of floats by these names."
        ) from error
