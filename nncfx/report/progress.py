"""The page of a run whose trials have no common level: its progress, in a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from nncfx.evidence.formatting import number
from nncfx.report.page import environment
from nncfx.storage.formats.whole_file import write_text


@final
@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a run, and each trial or epoch so far.

    Attributes:
        title: Name of the run.
        state: "running" or "stopped", and how much is done.
        facts: The facts above the table, by name.
        rows: One for each trial or epoch, all with the same keys.
        best: The number of the currently best row; None if there is none.
    """

    title: str
    state: str
    facts: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    best: int | None = None


def render_progress(progress: Progress) -> str:
    """Return the page; it is self-contained, and browsers reload it during the run.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    heads = tuple(progress.rows[0]) if progress.rows else ()
    rows = [
        (number == progress.best, [_text(one.get(head)) for head in heads])
        for number, one in enumerate(progress.rows)
    ]
    page = environment().get_template("progress.html.j2")
    return page.render(progress=progress, heads=heads, rows=rows)


def write_progress(path: str | Path, progress: Progress) -> Path:
    """Write the page to `path`, completely or not at all, and return the path.

    Raises:
        MissingExtraError: jinja2 is not installed.
        StorageError: The path cannot be written.
    """
    return write_text(path, render_progress(progress))


def _text(value: object) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else str(value)
