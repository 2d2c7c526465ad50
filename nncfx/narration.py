"""Progress messages, for a user at a terminal and for the log."""

import logging
import random
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

from typing_extensions import override

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Narrator", "SilentNarrator", "narrated", "tracked"]

_T = TypeVar("_T")
_LOGGER: Final = logging.getLogger(__name__)
_SECONDS: Final = 10.0
"""The least time between two steps in the log."""


class Narrator(Protocol):
    """Reports the current work, and results."""

    def now(self, text: str) -> None:
        """Show `text` as the current work."""

    def step(self, text: str) -> None:
        """Show `text` as one of many steps, some of which are short."""

    def found(self, text: str) -> None:
        """Keep `text` as a line of its own."""


@final
class SilentNarrator(Narrator):
    """Reports nothing; used in workers, because the driver of a search reports."""

    @override
    def now(self, text: str) -> None:
        """Do nothing."""

    @override
    def step(self, text: str) -> None:
        """Do nothing."""

    @override
    def found(self, text: str) -> None:
        """Do nothing."""


@final
class _Logged(Narrator):
    def __init__(self, title: str) -> None:
        self._title = title
        self._told = time.monotonic()

    @override
    def now(self, text: str) -> None:
        self._told = time.monotonic()
        _LOGGER.info("%s: %s", self._title, text)

    @override
    def step(self, text: str) -> None:
        if time.monotonic() - self._told >= _SECONDS:
            self.now(text)

    @override
    def found(self, text: str) -> None:
        self.now(text)


@final
class _Terminal(Narrator):
    def __init__(self, progress: "Progress", task: "TaskID", title: str) -> None:
        self._progress, self._task, self._title = progress, task, title

    @override
    def now(self, text: str) -> None:
        """Change the last line; rich redraws it ten times a second, however often it changes."""
        from rich.markup import escape

        self._progress.update(self._task, description=escape(f"{self._title}: {text}"))

    @override
    def step(self, text: str) -> None:
        self.now(text)

    @override
    def found(self, text: str) -> None:
        self._progress.console.print(
            f"{self._title}: {text}", highlight=False, markup=False, soft_wrap=True
        )


_SHOWN: Final[ContextVar["Progress | None"]] = ContextVar("shown", default=None)
"""The progress display of the enclosing narrators."""


@contextmanager
def narrated(title: str) -> Iterator[Narrator]:
    """Yield a narrator that writes to standard error if that is a terminal, else to the log.

    The current work is shown in the last line next to the elapsed time, and is removed at the end;
    results stay. A nested narrator has a line below. The log, at INFO, omits steps that follow
    another line within ten seconds.
    """
    if not sys.stderr.isatty() and _SHOWN.get() is None:
        yield _Logged(title)
        return
    with _shown() as progress:
        from rich.markup import escape

        task = progress.add_task(escape(title), total=None)
        narrator = _Terminal(progress, task, title)
        try:
            yield narrator
        except KeyboardInterrupt:
            narrator.found("stopped")
            raise
        finally:
            progress.remove_task(task)


def tracked(items: Iterable[_T], title: str, *, redraws: bool = True) -> Iterator[_T]:
    """Yield `items`, with a progress bar on standard error if it is a terminal.

    Without `redraws` the bar is only drawn between items, so no drawing thread disturbs timings.
    """
    _load_rich()
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(
        items,
        title,
        console=console,
        auto_refresh=redraws,
        transient=True,
        disable=not console.is_terminal,
    )


def _load_rich() -> None:
    """Import rich without consuming numbers from Python's random generator, which users seed."""
    state = random.getstate()
    try:
        import rich.style  # noqa: F401 (its import draws a random number)
    finally:
        random.setstate(state)


@contextmanager
def _shown() -> Iterator["Progress"]:
    """Yield the progress display of the enclosing narrator, or a new one."""
    known = _SHOWN.get()
    if known is not None:
        yield known
        return
    _load_rich()
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # pass the file explicitly: replacing sys.stderr later does not silence the narrator
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        token = _SHOWN.set(progress)
        try:
            yield progress
        finally:
            _SHOWN.reset(token)
