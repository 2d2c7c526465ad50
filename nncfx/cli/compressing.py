"""`nncfx compress`, `resume` and `status`: compression from one file."""

import importlib.util
import logging
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer
from typing_extensions import override

from nncfx.cli.console import print_json
from nncfx.cli.run_output import show_outcome, show_plan, show_status
from nncfx.errors import ArgumentError, MissingExtraError

if TYPE_CHECKING:
    from nncfx.tasks import Outcome, Task
    from nncfx.tasks.training import Say

OUTSIDE: Final = 3
"""The exit code if the compressed model exceeds the budget of its search."""

_FOLLOW_SECONDS: Final = 5.0

AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON, not text.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Trials of a search to run in parallel.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No lines of progress.")]


def compress(
    config: Annotated[Path, typer.Argument(help="A JSON config, or a Python task file.")],
    *,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder for all files; by default NAME-run next to the config."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan; train and write nothing.")
    ] = False,
    workers: Workers = None,
    as_json: AsJSON = False,
    quiet: Quiet = False,
) -> None:
    """Compress the model of a config: search or train, save, export, time, report.

    If it is killed, `nncfx resume FOLDER` continues where it stopped.
    """
    say = _progress(quiet=quiet)
    say(f"reading {config}")
    from nncfx.tasks import plan_task, read_task

    task = read_task(config)
    _tell_unread(task)
    if dry_run:
        say("making the model and the data, and compressing the model to some levels")
        plan = plan_task(task)
        print_json(plan.to_json()) if as_json else show_plan(plan)
        return
    _run(task, folder or config.with_name(f"{config.stem}-run"), workers, as_json, say)


def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    *,
    workers: Workers = None,
    as_json: AsJSON = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run of `nncfx compress` that was stopped or killed."""
    say = _progress(quiet=quiet)
    say(f"reading the run in {folder}")
    from nncfx.tasks import read_task
    from nncfx.tasks.run import config_of, ended_result

    config = config_of(folder)
    ended = ended_result(folder)
    if ended is None:
        _run(read_task(config), folder, workers, as_json, say)
        return
    say(
        "this run has ended; its results follow. After a change of the config, or to export and "
        "time it again: " + shlex.join(["nncfx", "compress", str(config), "--folder", str(folder)])
    )
    _tell(ended, folder, as_json)


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder for all files.")] = Path("demo-run"),
    *,
    as_json: AsJSON = False,
    quiet: Quiet = False,
) -> None:
    """Compress a small network for scikit-learn's digits, from a task file that you can copy.

    The file is written to FOLDER/digits.py. If it is killed, run `nncfx demo` again to continue.
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
        Path | None, typer.Option(help="Also write the report of the results so far.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write the page again every 5 s until the run ends.")
    ] = False,
    as_json: AsJSON = False,
) -> None:
    """Show the progress of a run: trials, the best so far, the time left."""
    from nncfx.tasks import run_status

    if follow and html is None:
        raise ArgumentError("--follow rewrites the page of --html. Give both.")
    found = run_status(folder)
    if html is not None:
        from nncfx.tasks.unfinished import write_page

        write_page(folder, html)
        while follow and found.state == "running":
            time.sleep(_FOLLOW_SECONDS)
            found = run_status(folder)
            write_page(folder, html)
    if as_json:
        print_json(found.to_json())
    else:
        show_status(found)
        if html is not None:
            sys.stdout.write(f"Report written to {html}\n")


def _run(task: "Task", folder: Path, workers: int | None, as_json: bool, say: "Say") -> None:
    from nncfx.tasks import run_task

    say(f"run in {folder}")
    if workers is not None and task.config.search is None:
        raise ArgumentError(
            "--workers is for the trials of a search, and this config has none. Leave it out."
        )
    settings = {} if workers is None else {"workers": workers}
    try:
        result = run_task(task, folder, say=say, settings=settings)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; continue with: nncfx resume {shlex.quote(str(folder))}\n")
        raise typer.Exit(130) from None
    _tell(result, folder, as_json)


def _tell(outcome: "Outcome", folder: Path, as_json: bool) -> None:
    """Print the outcome of a run, and exit with `OUTSIDE` if it exceeds the budget."""
    if as_json:
        files = {name: str(path) for name, path in outcome.files.items()}
        print_json({**outcome.facts, "files": files, "folder": str(folder)})
    else:
        show_outcome(outcome)
    if not outcome.is_inside:
        raise typer.Exit(OUTSIDE)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to the current standard error, which a progress display may replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    @override
    def stream(self) -> TextIO:  # type: ignore[override]  # that of the base can be set
        return sys.stderr


class _FirstLine(logging.Formatter):
    """Prints only the first line of messages that are not warnings; the log has them all."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return text if record.levelno >= logging.WARNING else text.partition("\n")[0]


def _progress(*, quiet: bool) -> "Say":
    """Send the log of nncfx to standard error, with times unless that is a terminal."""
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
    """Warn about top-level keys that this command does not read, and where they may belong."""
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
        where = f" It belongs in '{homes[0]}'." if homes else ""
        sys.stderr.write(f"note: '{key}' at the top is your own key, not read here.{where}\n")
