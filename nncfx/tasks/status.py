"""The status of a run, read from its folder while it continues or after it has ended."""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

import jsonschema

from nncfx.compressor.study_evidence import candidate_sample, level_sample
from nncfx.errors import SearchError, StorageError, error_text
from nncfx.evidence.evidence import Evidence, Sample
from nncfx.locks import is_locked
from nncfx.objectives.ready import ready_objective
from nncfx.search import CAUTION, CandidateTrial, Trial
from nncfx.storage.formats.line_file import json_line, read_lines
from nncfx.storage.formats.whole_file import read_object
from nncfx.tasks.run import EVIDENCE, FAILURE, RESULT, RUN
from nncfx.tasks.training import PROGRESS

JOURNAL: Final = "journal.jsonl"

State: TypeAlias = Literal["running", "ended", "failed", "stopped"]

_SEARCH: Final = {
    "type": ["object", "null"],
    "properties": {
        "max_evaluations": {"type": "integer"},
        "threshold": {"type": ["number", "null"]},
        "at_least": {"type": "object", "additionalProperties": {"type": "number"}},
        "objectives": {"type": "object"},
    },
    "dependentRequired": {"at_least": ["objectives"]},
}
_HEADER: Final = {
    "type": "object",
    "required": ["format"],
    "properties": {
        "format": {"const": "nncfx-study"},
        "header": {"type": "object"},
        "search": _SEARCH,
    },
}
"""The keys that are read from a journal's first line."""


@final
@dataclass(frozen=True, kw_only=True)
class BestTrial:
    """The trial that would be chosen if the search ended now.

    Attributes:
        candidate: {"level": ...}, or a value for each dimension of a space.
        metric: Its metric.
        objective: Its objective.
    """

    candidate: Mapping[str, Any]
    metric: float
    objective: float


@final
@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The progress of a run.

    Attributes:
        folder: Of the run.
        state: "running", "ended", "failed", or "stopped" before its end.
        kind: "search", "training", or "export" alone.
        done: Number of finished trials or steps, without the dense model.
        at_most: The largest possible number of them; a search can end earlier.
        stages: Number of equal parts of that: a search of one level has two.
        failed: Number of failed trials.
        objective: The objective; "" in a training.
        metric: The name of the metric.
        threshold: The metric that the search requires; None in a training.
        dense_metric: Of the original model; None if not known yet.
        best: The current choice; None if no trial keeps the threshold.
        unit: Of the objective; "" if it has none.
        unsure: Trials that keep the threshold, but not by `nncfx.search.CAUTION` standard errors.
        level: The current level of a training; None in a search.
        seconds_left: At the current pace and at most; None if there is no pace yet, or the run
            ended.
        last_change: Time of the last write, ISO 8601 in UTC.
        error: Why it failed; "" if it did not.
    """

    folder: Path
    state: State
    kind: Literal["search", "training", "export"]
    done: int
    at_most: int
    stages: int = 1
    failed: int = 0
    objective: str = ""
    metric: str = "metric"
    threshold: float | None = None
    dense_metric: float | None = None
    best: BestTrial | None = None
    unit: str = ""
    unsure: int = 0
    level: float | None = None
    seconds_left: float | None = None
    last_change: str
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return dataclasses.asdict(self) | {"folder": str(self.folder)}


def run_status(folder: str | Path) -> RunStatus:
    """Return the progress of the run in `folder`; nothing is locked or changed.

    Raises:
        StorageError: there is no run in `folder`, or a file of it is damaged.
    """
    folder = Path(folder)
    found = _status(folder)
    if found.state == "failed":
        return dataclasses.replace(found, error=_error(folder))
    return found


def _status(folder: Path) -> RunStatus:
    journal, progress = folder / JOURNAL, folder / PROGRESS
    if journal.is_file():
        return _of_search(folder, journal)
    if progress.is_file():
        return _of_training(folder, progress)
    if (folder / RUN).is_file():
        return RunStatus(
            folder=folder,
            state=_state(folder, folder / RUN),
            kind=_kind(folder),
            done=0,
            at_most=0,
            last_change=_changed(folder / RUN),
        )
    raise StorageError(
        f"'{folder}' holds no run: there is no {JOURNAL}, no {PROGRESS} and no {RUN} in it. Give "
        "the folder of a run."
    )


def _kind(folder: Path) -> Literal["search", "training", "export"]:
    found = read_object(folder / RUN, "run").get("kind")
    return found if found in ("search", "export") else "training"


def _error(folder: Path) -> str:
    return str(read_object(folder / FAILURE, "failure of a run").get("error"))


def _of_training(folder: Path, progress: Path) -> RunStatus:
    facts: dict[str, Any] = read_object(progress, "progress of a training")
    state = _state(folder, folder / RUN)
    try:
        return RunStatus(
            folder=folder,
            state=state,
            kind="training",
            done=int(facts["step"]),
            at_most=int(facts["steps"]),
            level=float(facts["level"]),
            seconds_left=None if state == "ended" else float(facts["seconds_left"]),
            last_change=_changed(progress),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"'{progress}' is not the progress of a training ({error_text(error)}). Delete it; "
            "the next epoch writes it again."
        ) from error


def _of_search(folder: Path, journal: Path) -> RunStatus:
    header, records = read_journal(journal)
    search = header.get("search") or {}
    state = _state(folder, journal)
    is_space = header.get("header", {}).get("kind") == "candidates"
    samples = _samples(records, journal, is_space=is_space)
    said = header.get("header", {})
    name = str(said.get("objective", ""))
    tried = [one for one in samples if one.stage != "dense"]
    stages = 1 if is_space else 2
    most = int(search.get("max_evaluations", 0)) * stages
    threshold, maximize = _aims(search)
    above = [
        one
        for one in tried
        if one.accuracy is not None and threshold is not None and one.accuracy >= threshold
    ]
    kept = [one for one in above if threshold is not None and _safe(one) >= threshold]
    best = (max if maximize else min)(kept, key=lambda one: one.objective or 0.0, default=None)
    pace = sum(one.seconds for one in tried) / len(tried) if tried else None
    dense = next((one.accuracy for one in samples if one.stage == "dense"), None)
    candidates = {one["number"]: one.get("candidate") for one in records}
    return RunStatus(
        folder=folder,
        state=state,
        kind="search",
        done=len(tried),
        at_most=most,
        stages=stages,
        failed=sum(one.accuracy is None for one in tried),
        objective=name,
        unit=str(said.get("unit", "") or getattr(ready_objective(name), "unit", "")),
        metric=str(said.get("metric", "metric")),
        threshold=threshold,
        dense_metric=dense,
        best=None
        if best is None
        else BestTrial(
            candidate=candidates[best.number] or {"level": best.level},
            metric=best.accuracy or 0.0,
            objective=best.objective or 0.0,
        ),
        unsure=len(above) - len(kept),
        seconds_left=None
        if pace is None or state == "ended"
        else max(most - len(tried), 0) * pace,
        last_change=_changed(journal),
    )


def _safe(sample: Sample) -> float:
    return (sample.accuracy or 0.0) - CAUTION * (sample.standard_error or 0.0)


def _samples(
    records: Sequence[Mapping[str, Any]], journal: Path, *, is_space: bool
) -> list[Sample]:
    try:
        if is_space:
            return [candidate_sample(CandidateTrial.from_json(one)) for one in records]
        return [level_sample(Trial.from_json(dict(one))) for one in records]
    except ValueError as error:
        raise StorageError(f"'{journal}' is damaged: {error}") from error


def _aims(search: Mapping[str, Any]) -> tuple[float | None, bool]:
    """Return the threshold and whether the objective is maximized, from the journal."""
    if "at_least" in search:
        limits, objectives = search["at_least"], search["objectives"]
        return next(iter(limits.values()), None), "maximize" in objectives.values()
    return search.get("threshold"), bool(search.get("maximize"))


def read_journal(journal: Path) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    """Return header and trials; a line that is currently being written is left out.

    The leases of workers, which are running trials, are also left out.
    """
    lines = read_lines(journal).lines
    try:
        header, *records = (json_line(line) for line in lines)
        jsonschema.validate(header, _HEADER)
    except ValueError as error:
        if not lines:
            return {}, []
        raise StorageError(f"'{journal}' is damaged: {error}.") from error
    except jsonschema.ValidationError as error:
        raise StorageError(
            f"'{journal}' is not the journal of a search: line 1, {error.json_path}: "
            f"{error.message}."
        ) from error
    return header, [one for one in records if "lease" not in one]


def _state(folder: Path, lock: Path) -> State:
    if any(is_locked(one) for one in {lock, folder / RUN} if one.is_file()):
        return "running"
    if (folder / FAILURE).is_file():
        return "failed"
    if (folder / RUN).is_file():
        return "ended" if (folder / RESULT).is_file() else "stopped"
    if not (folder / EVIDENCE).is_file():
        return "stopped"
    try:
        Evidence.read(folder / EVIDENCE)
    except (StorageError, SearchError):
        return "stopped"
    return "ended"


def _changed(file: Path) -> str:
    moment = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
    return moment.isoformat(timespec="seconds")
