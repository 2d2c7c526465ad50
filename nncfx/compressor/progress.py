"""What a person at a terminal sees while a search runs, and what the log has of it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol, final

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from typing_extensions import override

__all__ = ["Narrator", "SilentNarrator", "narrated"]

_LOGGER: Final = logging.getLogger(__name__)


class Narrator(Protocol):
    """Tells what is going on now, and what has been found."""

    def now(self, text: str) -> None:
        """Show `text` as what is going on."""

    def found(self, text: str) -> None:
        """Leave `text` as a line of its own."""


@final
class SilentNarrator(Narrator):
    """Tells nothing: the process that drives a search does."""

    @override
    def now(self, text: str) -> None:
        """Say nothing."""

    @override
    def found(self, text: str) -> None:
        """Say nothing."""


@final
class _Logged(Narrator):
    def __init__(self, title: str) -> None:
        self._title = title

    @override
    def now(self, text: str) -> None:
        _LOGGER.debug("%s: %s", self._title, text)

    @override
    def found(self, text: str) -> None:
        _LOGGER.info("%s: %s", self._title, text)


@final
class _Terminal(Narrator):
    def __init__(self, progress: Progress, task: TaskID, title: str) -> None:
        self._progress, self._task, self._title = progress, task, title

    @override
    def now(self, text: str) -> None:
        """Change the last line; rich draws it ten times a second, however often it changes."""
        self._progress.update(self._task, description=escape(f"{self._title}: {text}"))

    @override
    def found(self, text: str) -> None:
        self._progress.console.print(
            f"{self._title}: {text}", highlight=False, markup=False, soft_wrap=True
        )


@contextmanager
def narrated(title: str) -> Iterator[Narrator]:
    """Give a narrator that writes to standard error if that is a terminal, else to the log.

    What is going on stands in the last line beside the time since the beginning, and is gone at
    the end; what has been found stays. The log has the former at DEBUG, the latter at INFO.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Logged(title)
        return
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        narrator = _Terminal(progress, progress.add_task(escape(title), total=None), title)
        try:
            yield narrator
        except KeyboardInterrupt:
            narrator.found("stopped")
            raise
