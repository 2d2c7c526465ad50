"""Evidence of what an unfinished search has found so far, from its journal alone."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nncfx import objectives
from nncfx.compressor import machine_facts, version_facts
from nncfx.compressor.build_evidence import StudyWords, study
from nncfx.errors import SearchError
from nncfx.evidence.evidence import Evidence, ModelFacts
from nncfx.objectives import Objective
from nncfx.search import CAUTION, SearchResult, Trial
from nncfx.search.one_level.results import best_trial
from nncfx.tasks.run import EVIDENCE
from nncfx.tasks.status import JOURNAL, RunStatus, read_journal, run_status
from nncfx.tasks.training import history

if TYPE_CHECKING:
    from nncfx.report.progress import Progress

__all__ = ["evidence_so_far", "write_page"]


def write_page(folder: str | Path, path: str | Path) -> Path:
    """Write the page of what the run in `folder` has come to, and return its path.

    A run that has ended, or searches one level, has the report; of a training there are its
    epochs, and of the search of a space its trials.

    Raises:
        StorageError: there is no run, or a file of it is damaged.
        SearchError: nothing has been measured yet.
        MissingExtraError: jinja2 is not installed.
    """
    from nncfx.report.page import write_report
    from nncfx.report.progress import write_progress

    folder = Path(folder)
    status = run_status(folder)
    if status.state == "ended" or not (rows := _rows(folder, status)):
        return write_report(path, evidence_so_far(folder))
    return write_progress(path, _progress(folder, status, rows))


def _rows(folder: Path, status: RunStatus) -> list[dict[str, Any]]:
    """Return the epochs of a training or the trials of a space; none of another search."""
    if status.kind == "training":
        return history(folder) or [{"step": status.done}]
    header, records = read_journal(folder / JOURNAL)
    if header.get("header", {}).get("kind") != "candidates":
        return []
    return [
        {
            "trial": one["number"],
            **one["candidate"],
            **(one.get("outcomes") or {}),
            "state": one["state"],
        }
        for one in records
    ] or [{"trial": "none yet"}]


def _progress(folder: Path, status: RunStatus, rows: list[dict[str, Any]]) -> "Progress":
    from nncfx.report.progress import Progress

    what = "trials" if status.kind == "search" else "steps"
    facts = {
        "objective": status.objective,
        "asked for": "" if status.threshold is None else f"{status.threshold:.4f}",
        "dense": "" if status.dense_metric is None else f"{status.dense_metric:.4f}",
        "time left": "" if status.seconds_left is None else f"{status.seconds_left:.0f} s at most",
        "last change": status.last_change,
    }
    chosen = None if status.best is None else dict(status.best.candidate)
    best = (number for number, one in enumerate(rows) if chosen and chosen.items() <= one.items())
    return Progress(
        title=folder.resolve().name,
        state=f"{status.state}, {status.done} of at most {status.at_most} {what} done",
        facts={name: text for name, text in facts.items() if text},
        rows=rows,
        best=next(best, None),
    )


def evidence_so_far(folder: str | Path) -> Evidence:
    """Return the evidence of the run in `folder`; of one that has not ended, what its journal has.

    Of an unfinished search the compressed model is the best trial so far, judged by the data that
    choose; layers and latencies are not known yet.

    Raises:
        StorageError: there is no run, or a file of it is damaged.
        SearchError: there is no journal of the search of one level, or nothing in it yet.
    """
    folder = Path(folder)
    status = run_status(folder)
    if status.state == "ended":
        return Evidence.read(folder / EVIDENCE)
    if status.kind == "training" or not (folder / JOURNAL).is_file():
        raise SearchError(
            f"'{folder}' holds a training, whose evidence is measured at its end.",
        )
    header, records = read_journal(folder / JOURNAL)
    said: Mapping[str, Any] = header.get("header", {})
    if said.get("kind") == "candidates":
        raise SearchError(
            f"'{folder}' holds the search of a space, whose evidence is measured at its end.",
        )
    trials = [Trial.from_json(dict(one)) for one in records]
    if not trials or trials[0].measurement is None:
        raise SearchError(f"The search in '{folder}' has measured nothing yet. Wait for a trial.")
    found = _result(trials, header.get("search") or {})
    objective = _objective(str(said.get("objective")), maximize=found.maximize)
    words = StudyWords(
        name=objective.name,
        scheme=str(said.get("scheme")),
        recovery=str(said.get("optimizer")),
        budget=float(said.get("eps", 0.0)),
    )
    return Evidence(
        title=folder.name,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        metric=str(said.get("metric", "metric")),
        runtime=str(said.get("runtime", "")),
        machine=machine_facts(),
        versions=version_facts(),
        dense=_facts(trials[0]),
        compressed=_facts(found.chosen),
        studies=(study(words, found, objective),),
        layers=(),
        max_thinning_error=None,
        files={},
        notes=("Accuracies are of the data that choose.",),
        state=f"{status.state}, {status.done} of at most {status.at_most} trials done",
    )


def _result(trials: Sequence[Trial], search: Mapping[str, Any]) -> SearchResult:
    threshold, maximize = float(search["threshold"]), bool(search["maximize"])
    caution = float(search.get("caution", CAUTION))
    kept = [one for one in trials if one.is_feasible(threshold, caution)] or [trials[0]]
    return SearchResult(
        trials=tuple(trials),
        threshold=threshold,
        maximize=maximize,
        level_accuracy=max(one.level for one in kept),
        caution=caution,
        chosen=best_trial(kept, maximize=maximize),
    )


def _objective(name: str, *, maximize: bool) -> Objective:
    """Return the objective of this name; only its words and its direction are asked for."""
    ready = (vars(objectives)[one] for one in objectives.__all__)
    known = {one.name: one for one in ready if isinstance(one, Objective)}
    if name in known:
        return known[name]
    make = objectives.Maximize if maximize else objectives.Minimize

    def unknown(_: object) -> float:
        raise NotImplementedError  # nothing is measured from a journal

    unknown.__name__ = name
    return make(unknown)


def _facts(trial: Trial) -> ModelFacts:
    assert trial.measurement is not None  # noqa: S101 (only measured trials are asked)
    counts: Mapping[str, Any] = trial.measurement.details
    parameters = int(counts.get("parameters", 0))
    return ModelFacts(
        accuracy=trial.measurement.metric,
        parameters=parameters,
        nonzero=int(counts.get("nonzero", parameters)),
        macs=int(counts.get("macs", 0)),
        footprint_bytes=int(counts.get("footprint_bytes", 0)),
        file_bytes=None,
        latency_ms=None,
        latency_interval_ms=None,
        throughput=None,
    )
