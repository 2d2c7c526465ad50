"""`nncfx compress`, `resume` and `status`: the job, from one file."""

import importlib.util
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO, TypeAlias

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typing_extensions import override

from nncfx.errors import ArgumentError, MissingExtraError
from nncfx.report.format import bytes_text, count_text, prefix_text, ratio_text

if TYPE_CHECKING:
    from nncfx.tasks import RunStatus, Task, TaskPlan, TaskResult

__all__ = ["OUTSIDE", "compress", "demo", "resume", "status"]

OUTSIDE: Final = 3
"""The exit code when the compressed model is outside of the budget of its search."""

_FOLLOW_SECONDS: Final = 5.0

Say: TypeAlias = Callable[[str], None]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON, not text.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Trials that a search makes side by side.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No lines of progress.")]


def compress(
    config: Annotated[Path, typer.Argument(help="A JSON config, or a Python task file.")],
    *,
    folder: Annotated[
        Path | None, typer.Option(help="Where all files go; else NAME-run beside the config.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan; train and write nothing.")
    ] = False,
    workers: Workers = None,
    as_json: AsJSON = False,
    quiet: Quiet = False,
) -> None:
    """Compress the model of a config: search or train, save, export, time, report.

    Killed at any moment, it goes on where it stopped: `nncfx resume FOLDER`.
    """
    say = _progress(quiet=quiet)
    say(f"reading {config}")
    from nncfx.tasks import plan_task, read_task

    task = read_task(config)
    _tell_unread(task)
    if dry_run:
        say("making the model and the data, and compressing the model to some levels")
        plan = plan_task(task)
        _print(plan.to_json()) if as_json else _show_plan(plan)
        return
    _run(task, folder or config.with_name(f"{config.stem}-run"), workers, as_json, say)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    *,
    workers: Workers = None,
    as_json: AsJSON = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run of `nncfx compress` that was stopped or killed."""
    say = _progress(quiet=quiet)
    say(f"reading the run in {folder}")
    from nncfx.tasks import read_task
    from nncfx.tasks.run import config_of

    _run(read_task(config_of(folder)), folder, workers, as_json, say)


def demo(
    folder: Annotated[Path, typer.Argument(help="Where all files go.")] = Path("demo-run"),
    *,
    as_json: AsJSON = False,
    quiet: Quiet = False,
) -> None:
    """Compress a small network for scikit-learn's digits, by a task file that is yours to change.

    The file is written to FOLDER/digits.py; killed, `nncfx demo` goes on.
    """
    say = _progress(quiet=quiet)
    from nncfx.storage.formats.whole_file import write_text
    from nncfx.tasks import digits, read_task

    if importlib.util.find_spec("sklearn") is None:
        raise MissingExtraError("scikit-learn", "demo", "the demo")
    file = folder / "digits.py"
    if not file.exists():
        write_text(file, Path(digits.__file__).read_text(encoding="utf-8"))
    _run(read_task(file), folder, None, as_json, say)


def status(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, ended or not.")],
    *,
    html: Annotated[
        Path | None, typer.Option(help="Also write the page of what there is so far.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write the page anew every 5 s until the run ends.")
    ] = False,
    as_json: AsJSON = False,
) -> None:
    """Show how far a run has come: trials, the best so far, the time left."""
    from nncfx.tasks import run_status

    if follow and html is None:
        raise ArgumentError("--follow writes the page of --html anew. Give both.")
    found = run_status(folder)
    if html is not None:
        from nncfx.tasks.unfinished import write_page

        write_page(folder, html)
        while follow and found.state == "running":
            time.sleep(_FOLLOW_SECONDS)
            found = run_status(folder)
            write_page(folder, html)
    if as_json:
        _print(found.to_json())
    else:
        _show_status(found)
        if html is not None:
            Console().print(f"Report written to {html}", soft_wrap=True, markup=False)


def _run(task: "Task", folder: Path, workers: int | None, as_json: bool, say: Say) -> None:
    from nncfx.tasks import run_task

    say(f"run in {folder}")
    if workers is not None and task.config.search is None:
        raise ArgumentError(
            "--workers is for the trials of a search, and this config has none. Leave it out.",
        )
    settings = {} if workers is None else {"workers": workers}
    try:
        result = run_task(task, folder, say=say, settings=settings)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; go on with: nncfx resume {folder}\n")
        raise typer.Exit(130) from None
    if as_json:
        facts = dict(result.facts)
        files = {name: str(path) for name, path in result.files.items()}
        _print({**facts, "files": files, "folder": str(folder)})
    else:
        _show_result(result)
    judgement = None if result.evidence is None else result.evidence.judgement
    is_inside = judgement is None or judgement.is_inside
    if not (is_inside and result.facts.get("file_is_inside", True)):
        raise typer.Exit(OUTSIDE)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what standard error is now, which a progress display takes over."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    @override
    def stream(self) -> TextIO:  # type: ignore[override]  # that of the base can be set
        return sys.stderr


class _FirstLine(logging.Formatter):
    """Leaves the further lines of what is no warning to those who read the log."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno >= logging.WARNING else text.partition("\n")[0]


def _progress(*, quiet: bool) -> Say:
    """Let the log of nncfx go to standard error, with the time where that is no terminal."""
    logger = logging.getLogger("nncfx")
    handler = _StandardError()
    stamp = "" if sys.stderr.isatty() else "%(asctime)s "
    handler.setFormatter(_FirstLine(f"{stamp}%(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.INFO)

    def say(line: str) -> None:
        logger.info("%s", line)

    return say


def _tell_unread(task: "Task") -> None:
    """Name the keys at the top that this command does not read, and where they may belong."""
    from nncfx.config.option import options_of
    from nncfx.tasks.config import DataSection, ExportSection, ModelSection, TrainSection

    sections: Mapping[str, type] = {
        "model": ModelSection,
        "data": DataSection,
        "train": TrainSection,
        "export": ExportSection,
    }
    for key in task.config.user_keys:
        homes = [
            name
            for name, section in sections.items()
            if key in {one.name for one in options_of(section)}
        ]
        where = f" It belongs into '{homes[0]}'." if homes else ""
        sys.stderr.write(f"note: '{key}' at the top is your own key, not read here.{where}\n")


def _print(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")


def _show_plan(plan: "TaskPlan") -> None:
    console = Console()
    for stage in plan.stages:
        console.print(f"- {stage}", markup=False, highlight=False, soft_wrap=True)
    if plan.hooks:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for head in ("Site", "Algorithm", "Hook"):
            table.add_column(head, overflow="fold")
        table.add_column("Priority", justify="right")
        for hook in plan.hooks:
            table.add_row(escape(hook.site), hook.algorithm, hook.hook, str(hook.priority))
        console.print(table)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Predicted", overflow="fold")
    for head in ("Parameters", "MACs", "Footprint", ".nncfx"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in plan.predictions:
        if one.problem:
            table.add_row(f"{escape(one.at)}: {escape(one.problem)}")
        else:
            table.add_row(
                escape(one.at),
                count_text(one.parameters),
                prefix_text(one.macs),
                bytes_text(one.footprint_bytes),
                bytes_text(one.file_bytes),
            )
    console.print(table)


def _show_status(found: "RunStatus") -> None:
    lines = [f"{found.folder}: {found.state}"]
    what = "trial" if found.kind == "search" else "step"
    if found.at_most:
        failed = f", {found.failed} failed" if found.failed else ""
        parts = found.at_most // found.stages
        stages = f", {parts} in each of {found.stages} stages" if found.stages > 1 else ""
        lines.append(f"{what} {found.done} of at most {found.at_most}{stages}{failed}")
    if found.dense_metric is not None:
        lines.append(f"dense: {found.dense_metric:.4f}; asked for: {found.threshold:.4f}")
    best = "best" if found.state == "ended" else "best so far"
    if found.best is not None:
        chosen = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in found.best.candidate.items()
        )
        lines.append(
            f"{best}: {chosen}: {found.metric} {found.best.metric:.4f}, {found.objective} "
            f"{found.best.objective:.6g}"
        )
    elif found.kind == "search":
        stays = "; the dense model stays" if found.state == "ended" else ""
        lines.append(f"{best}: nothing keeps the budget{stays}")
    if found.unsure:
        lines.append(
            "trials that keep the budget, but not by two standard errors of their loss: "
            f"{found.unsure}; more examples for validation would tell"
        )
    if found.level is not None:
        lines.append(f"level {found.level:.4g}")
    if found.seconds_left is not None:
        lines.append(f"at most {_duration(found.seconds_left)} left at the pace so far")
    lines.append(f"last change: {found.last_change}")
    sys.stdout.write("\n".join(lines) + "\n")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _change(speed_up: float) -> str:
    if speed_up >= 1:
        return f"{speed_up:.2f} times as fast"
    return (
        f"SLOWER: {1 / speed_up:.2f} times the time. Floats are fast where whole channels go, "
        "integers where the processor multiplies bytes (docs/engines.md)"
    )


def _show_result(result: "TaskResult") -> None:
    lines = []
    if result.evidence is not None:
        from nncfx.evidence.summary import summary

        lines.append(summary(result.evidence))
    facts = result.facts
    if "onnx_bytes" in facts:
        text = f"{'ONNX file':12} {bytes_text(facts['onnx_bytes'])}"
        if "dense_onnx_bytes" in facts:
            smaller = facts["dense_onnx_bytes"] / facts["onnx_bytes"]
            text += f", {ratio_text(smaller)} smaller than dense"
        lines.append(text)
    if "speed_up" in facts:
        times = facts["latency_ms"]
        is_clear = facts.get("is_clear", True)  # results of before have no such word
        change = _change(facts["speed_up"]) if is_clear else "no clear change"
        dense, exported = times["dense"], times["exported"]
        lines.append(f"{facts['runtime']:12} {dense:.3g} ms -> {exported:.3g} ms, {change}")
    if "exported_metric" in facts:
        name, found = facts.get("metric", "metric"), facts["exported_metric"]
        dense = facts.get("dense_file_metric")
        beside = "" if dense is None else f", dense {dense:.4f}"
        lines.append(f"{'the file has':12} {name} {found:.4f}{beside}")
    if not facts.get("file_is_inside", True):
        lines.append("OUTSIDE of the budget: the file, after its export")
    lines += [f"{name:12} {path}" for name, path in result.files.items()]
    sys.stdout.write("\n".join(lines) + "\n")
