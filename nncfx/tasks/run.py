"""Runs a task: compress, prove, save, quantize, export, time; resumes it after a kill."""

import contextlib
import datetime as dt
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import nn

from nncfx.compressor import Compressor
from nncfx.errors import ArgumentError, MachineError, MissingExtraError, NNCFXError, StorageError
from nncfx.evidence.evidence import Evidence
from nncfx.locks import lock
from nncfx.storage.formats.whole_file import read_object, read_text, write_text
from nncfx.tasks.exported_file import export_file, with_export
from nncfx.tasks.task import Task, read_task
from nncfx.tasks.training import Say, Trained, evidence_of, save_compressed, train_task

RUN: Final = "run.json"
RESULT: Final = "result.json"
EVIDENCE: Final = "evidence.json"
FAILURE: Final = "failure.json"
_MODEL: Final = "model.nncfx"
_REPORT: Final = "report.html"
_FORMAT: Final = "nncfx-run"
_NUMBERS: Final = (
    *("onnx_bytes", "dense_onnx_bytes", "speed_up"),
    *("exported_metric", "dense_file_metric"),
)
"""Facts of an exported file; all except metrics are above 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of a task.

    Attributes:
        files: The written files, by kind.
        facts: Numbers for people and programs: metric, bytes, MACs, latency.
        evidence: The content of the report; None if nothing was compressed before the export.
    """

    files: Mapping[str, Path]
    facts: Mapping[str, Any]
    evidence: Evidence | None

    @property
    def is_inside(self) -> bool:
        """Whether the model, and the exported file, keep the budget of the search, if any."""
        judgement = None if self.evidence is None else self.evidence.judgement
        of_file: bool = self.facts.get("file_is_inside", True)
        return of_file and (judgement is None or judgement.is_inside)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TaskResult(Outcome):
    """The outcome of a task, and its model.

    Attributes:
        model: The compressed model; quantized if 'export' asks for it.
    """

    model: nn.Module


def run_task(
    task: Task,
    folder: str | Path,
    *,
    say: Say = lambda _: None,
    settings: Mapping[str, Any] | None = None,
) -> TaskResult:
    """Run `task` in `folder`; call it again to continue after an interruption.

    Args:
        task: From `read_task`.
        folder: The folder for all files; created if missing.
        say: Called with lines that report progress.
        settings: Of the `Compressor` of a search, in addition to those of the config.

    Raises:
        NNCFXError: any error of the parts: a fault of the config, of the data or of the machine.
    """
    folder = Path(folder)
    _begin(task, folder)
    with held(folder), _failure_told(folder):
        say("making the model and the data")
        compressed, evidence, files = _compressed(task, folder, say, settings or {})
        facts: dict[str, Any] = {}
        model = compressed.model
        if evidence is not None:
            facts = _facts(evidence)
            files |= _written(folder, evidence, say)  # even if the export fails
        if task.config.export is not None:
            model, exported = export_file(task, folder, compressed, say)
            facts |= exported
            files["ONNX model"] = folder / task.config.export.file
            if evidence is not None:
                evidence = with_export(evidence, exported, files["ONNX model"])
                files |= _written(folder, evidence, say)
        result = TaskResult(model=model, files=files, facts=facts, evidence=evidence)
        document = {**facts, "files": {name: str(path) for name, path in files.items()}}
        write_text(folder / RESULT, json.dumps(document, indent=1) + "\n")
        return result


def resume_task(folder: str | Path, **parts: Any) -> TaskResult:  # noqa: ANN401 (as run_task)
    """Continue the run in `folder`; `parts` are those of `run_task`.

    Raises:
        StorageError: `folder` does not contain a run, or its config was moved.
        NNCFXError: as `run_task`.
    """
    return run_task(read_task(config_of(folder)), folder, **parts)


def ended_result(folder: str | Path) -> Outcome | None:
    """Return the outcome of the run in `folder`; None if it has not ended.

    Raises:
        StorageError: a file of the run is damaged.
    """
    folder = Path(folder)
    if not (folder / RESULT).is_file() or (folder / FAILURE).is_file():
        return None
    facts: dict[str, Any] = read_object(folder / RESULT, "result of a run")
    named = facts.pop("files", None)
    if not isinstance(named, dict):
        raise StorageError(f"'{folder / RESULT}' is damaged: it names no files. Delete it.")
    _check_numbers(facts, folder / RESULT)
    files = {str(name): Path(str(path)) for name, path in named.items()}
    evidence = Evidence.read(folder / EVIDENCE) if "evidence" in files else None
    return Outcome(files=files, facts=facts, evidence=evidence)


def _check_numbers(facts: Mapping[str, Any], file: Path) -> None:
    """Refuse invalid facts of an exported file."""
    times = facts.get("latency_ms", {})
    numbers = {name: facts[name] for name in _NUMBERS if name in facts}
    if "speed_up" in facts:
        for name in ("dense", "exported"):
            numbers[f"latency_ms.{name}"] = times.get(name) if isinstance(times, dict) else None
    for name, one in numbers.items():
        is_number = isinstance(one, int | float) and not isinstance(one, bool)
        if not is_number or (one <= 0 and not name.endswith("metric")):
            raise StorageError(f"'{file}' is damaged: its {name} is {one!r:.60}. Delete it.")


def config_of(folder: str | Path) -> Path:
    """Return the config of the run in `folder`.

    Raises:
        StorageError: `folder` does not contain a run, or its config was moved.
    """
    file = Path(folder) / RUN
    if not file.is_file():
        raise StorageError(
            f"'{folder}' holds no run of 'nncfx compress'. A run of nncfx.Compressor goes on when "
            "its script is started again with the same folder."
        )
    body = read_object(file, "run")
    config = body.get("config")
    if body.get("format") != _FORMAT or not isinstance(config, str):
        raise StorageError(f"'{file}' is not what 'nncfx compress' writes. Restore it.")
    if not Path(config).is_file():
        raise StorageError(
            f"The config of this run, '{config}', is gone. Put it back, or start it where it is "
            f"now: nncfx compress CONFIG --folder {shlex.quote(str(folder))}"
        )
    return Path(config)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the run in `folder` for this process; the lock ends with the process.

    Raises:
        MachineError: another process has locked it.
    """
    handle = os.open(folder / RUN, os.O_RDONLY)
    try:
        if not lock(handle):
            raise MachineError(
                f"'{folder}' is in use by another run, and the two would overwrite each other. "
                "Wait for it to end, or give another --folder."
            )
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _failure_told(folder: Path) -> Iterator[None]:
    """Save in `folder` why the run failed, for `run_status`, until it runs again.

    A run that had ended before remains ended if all files named in its result are unchanged.
    """
    before, files = _ended_before(folder)
    for name in (FAILURE, RESULT):
        (folder / name).unlink(missing_ok=True)
    try:
        yield
    except BaseException as error:
        if before is not None and files == _changes(files):
            write_text(folder / RESULT, before)
            raise
        if not isinstance(error, Exception):
            raise
        text = str(error) if isinstance(error, NNCFXError) else repr(error)
        when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        with contextlib.suppress(StorageError):  # a full disk must not hide the actual error
            write_text(folder / FAILURE, json.dumps({"error": text, "when": when}) + "\n")
        raise


def _ended_before(folder: Path) -> tuple[str | None, dict[Path, int]]:
    """Return the result of a run that has ended, and the modification times of its files."""
    outcome = None
    with contextlib.suppress(StorageError):  # a damaged file is written again
        outcome = ended_result(folder)
    if outcome is None:
        return None, {}
    return read_text(folder / RESULT), _changes(outcome.files.values())


def _changes(files: Iterable[Path]) -> dict[Path, int]:
    return {one: one.stat().st_mtime_ns for one in files if one.exists()}


def _begin(task: Task, folder: Path) -> None:
    known = folder / RUN
    facts = {"format": _FORMAT, "version": 1, "config": str(task.path), "kind": task.kind}
    text = json.dumps(facts, indent=1)
    if known.exists():
        other = read_object(known, "run").get("config")
        if other != str(task.path):
            raise ArgumentError(
                f"'{folder}' holds a run of '{other}', not of '{task.path}'. Give another "
                "--folder, or delete this one."
            )
        return
    export = task.config.export
    written = (RESULT, EVIDENCE, _MODEL, _REPORT, *([] if export is None else [export.file]))
    for name in written:
        if (folder / name).exists():
            raise ArgumentError(
                f"'{folder / name}' does not belong to a run of 'nncfx compress', and this one "
                "would overwrite it. Give another --folder, or move the file."
            )
    write_text(known, text + "\n")


def _compressed(
    task: Task, folder: Path, say: Say, settings: Mapping[str, Any]
) -> tuple[Trained, Evidence | None, dict[str, Path]]:
    """Return the models before and after, with the evidence and the files of this stage."""
    if task.config.search is None and not task.config.compression:
        dense = task.model()
        return Trained(dense=dense, model=dense, metrics=(0.0, 0.0)), None, {}
    file = folder / _MODEL
    if task.config.search is not None:
        compressed, evidence = _searched(task, folder, file, settings, say)
    else:
        compressed = train_task(task, folder, say)
        say("measuring the compressed model")
        evidence = evidence_of(task, compressed, save_compressed(file, compressed))
    return compressed, evidence, {"compressed model": file}


def _searched(
    task: Task, folder: Path, file: Path, settings: Mapping[str, Any], say: Say
) -> tuple[Trained, Evidence]:
    data = task.data
    torch.manual_seed(task.config.train.seed)
    own = task.objective
    parts: dict[str, Any] = {
        **({} if own is None else {"objective": own}),
        "model": task.model(),
        "trainloader": data.train,
        "valloader": data.validation,
        "testloader": data.test,
        "criterion": task.criterion,
        "metric": task.metric,
        "example_inputs": task.example_inputs,
        "folder": folder,
        "title": task.path.stem,
    }
    found = Compressor.from_config(task.config.base, **parts, **settings).run()
    say(f"writing {file}")
    result = found.save(file)
    metrics = (result.evidence.dense.accuracy, result.evidence.compressed.accuracy)
    return Trained(dense=result.dense, model=result.model, metrics=metrics), result.evidence


def _written(folder: Path, evidence: Evidence, say: Say) -> dict[str, Path]:
    """Write evidence and report; return their paths."""
    say("writing the report")
    files = {"evidence": evidence.write(folder / EVIDENCE)}
    try:
        from nncfx.report import write_report

        files["report"] = write_report(folder / _REPORT, evidence)
    except MissingExtraError as error:
        say(f"no report: {error}")
    return files


def _facts(evidence: Evidence) -> dict[str, Any]:
    names = ("accuracy", "parameters", "macs", "footprint_bytes", "file_bytes")
    return {
        "metric": evidence.metric,
        "dense": {name: getattr(evidence.dense, name) for name in names},
        "compressed": {name: getattr(evidence.compressed, name) for name in names},
    }
