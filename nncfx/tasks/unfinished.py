"""Evidence of an unfinished search, from its journal alone."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nncfx.compressor import machine_facts, version_facts
from nncfx.compressor.study_evidence import StudyWords, study
from nncfx.errors import SearchError
from nncfx.evidence.evidence import Evidence, ModelFacts
from nncfx.objectives import Maximize, Minimize, Objective
from nncfx.objectives.ready import ready_objective
from nncfx.search import CAUTION, SearchResult, Trial
from nncfx.search.one_level.results import best_trial
from nncfx.tasks.run import EVIDENCE, RUN, config_of
from nncfx.tasks.status import JOURNAL, RunStatus, read_journal, run_status
from nncfx.tasks.training import history

if TYPE_CHECKING:
    from nncfx.report.progress import Progress


def write_page(folder: str | Path, path: str | Path) -> Path:
    """Write a page about the run in `folder`, and return its path.

    A run that has ended, or that searches one level, gets the report; a training a list of its
    epochs, and the search of a space a list of its trials. Before the first measurement the page
    only shows the state.

    Raises:
        StorageError: there is no run, or a file of it is damaged.
        MissingExtraError: jinja2 is not installed.
    """
    from nncfx.report.page import write_report
    from nncfx.report.progress import write_progress

    folder = Path(folder)
    status = run_status(folder)
    if status.state == "ended":
        return write_report(path, evidence_so_far(folder))
    rows = _rows(folder, status)
    if rows is None:
        return write_report(path, evidence_so_far(folder))
    return write_progress(path, _progress(folder, status, rows))


def _rows(folder: Path, status: RunStatus) -> list[dict[str, Any]] | None:
    """Return the epochs of a training or the trials of a space; None if there is a report."""
    if not (folder / JOURNAL).is_file():
        return history(folder)
    header, records = read_journal(folder / JOURNAL)
    if header.get("header", {}).get("kind") != "candidates":
        return [] if status.dense_metric is None else None
    objective = f"{status.objective} ({status.unit})" if status.unit else status.objective
    return [
        {
            "trial": one["number"],
            **one["candidate"],
            status.metric: (one.get("outcomes") or {}).get("metric"),
            objective: (one.get("outcomes") or {}).get("objective"),
            "seconds": one.get("seconds"),
            "outcome": one["state"],
        }
        for one in records
    ]


def _words(status: RunStatus) -> str:
    """Return the current work, or why it failed, and the progress."""
    state = f"failed: {status.error.rstrip('.')}" if status.error else status.state
    if not status.at_most:
        return state if status.error else f"{state}, nothing measured yet"
    what = "trials" if status.kind == "search" else "steps"
    return f"{state}; {status.done} of at most {status.at_most} {what} done"


def _progress(folder: Path, status: RunStatus, rows: list[dict[str, Any]]) -> "Progress":
    from nncfx.report.format import moment_text
    from nncfx.report.progress import Progress

    facts = {
        "objective": status.objective,
        "asked for": "" if status.threshold is None else f"{status.threshold:.4f}",
        "dense": "" if status.dense_metric is None else f"{status.dense_metric:.4f}",
        "time left": "" if status.seconds_left is None else f"{status.seconds_left:.0f} s at most",
        "last change": moment_text(status.last_change),
    }
    chosen = None if status.best is None else dict(status.best.candidate)
    best = (number for number, one in enumerate(rows) if chosen and chosen.items() <= one.items())
    return Progress(
        title=_title(folder),
        state=_words(status),
        facts={name: text for name, text in facts.items() if text},
        rows=rows,
        best=next(best, None),
    )


def evidence_so_far(folder: str | Path) -> Evidence:
    """Return the evidence of the run in `folder`; if it has not ended, from its journal.

    For an unfinished search the compressed model is the best trial so far, judged by the data that
    choose; layers and latencies are not known yet.

    Raises:
        StorageError: there is no run, or a file of it is damaged.
        SearchError: there is no journal of a search of one level, or it is still empty.
    """
    folder = Path(folder)
    status = run_status(folder)
    if status.state == "ended":
        return Evidence.read(folder / EVIDENCE)
    if status.kind == "training" or not (folder / JOURNAL).is_file():
        raise SearchError(f"'{folder}' holds a training, whose evidence is measured at its end.")
    header, records = read_journal(folder / JOURNAL)
    said: Mapping[str, Any] = header.get("header", {})
    if said.get("kind") == "candidates":
        raise SearchError(
            f"'{folder}' holds the search of a space, whose evidence is measured at its end."
        )
    trials = [Trial.from_json(dict(one)) for one in records]
    if not trials or trials[0].measurement is None:
        raise SearchError(f"The search in '{folder}' has measured nothing yet. Wait for a trial.")
    found = _result(trials, header.get("search") or {})
    objective = _objective(said, maximize=found.maximize)
    words = StudyWords(
        name=objective.name,
        scheme=str(said.get("scheme")),
        recovery=str(said.get("optimizer")),
        budget=float(said.get("eps", 0.0)),
    )
    return Evidence(
        title=_title(folder),
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
        notes=("Accuracies are measured on the data that the search chooses by.",),
        state=_words(status),
    )


def _title(folder: Path) -> str:
    """Return the future title of the report: the task's name, or that of the folder."""
    is_task = (folder / RUN).is_file()
    return config_of(folder).stem if is_task else folder.resolve().name


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


def _objective(said: Mapping[str, Any], *, maximize: bool) -> Objective:
    """Return the objective of a journal; only its words and its direction are used."""
    name = str(said.get("objective"))
    known = ready_objective(name)
    if known is not None:
        return known

    def unknown(_: object) -> float:
        raise NotImplementedError  # nothing is measured for a journal

    make = Maximize if maximize else Minimize
    return make(unknown, name=name, unit=str(said.get("unit", "")))


def _facts(trial: Trial) -> ModelFacts:
    assert trial.measurement is not None  # noqa: S101 (only measured trials are passed)
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
