"""What a person at a terminal sees while something runs, and what the log has of it."""

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
"""Between two steps of which the log tells."""


class Narrator(Protocol):
    """Tells what is happening now, and what has been found."""

    def now(self, text: str) -> None:
        """Show `text` as what is happening."""

    def step(self, text: str) -> None:
        """Show `text`, one of many steps, some of which are soon over."""

    def found(self, text: str) -> None:
        """Leave `text` as a line of its own."""


@final
class SilentNarrator(Narrator):
    """Tells nothing: the process that drives a search does."""

    @override
    def now(self, text: str) -> None:
        """Say nothing."""

    @override
    def step(self, text: str) -> None:
        """Say nothing."""

    @override
    def found(self, text: str) -> None:
        """Say nothing."""


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
        """Change the last line; rich draws it ten times a second, however often it changes."""
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
"""What shows the narrators around the present one."""


@contextmanager
def narrated(title: str) -> Iterator[Narrator]:
    """Give a narrator that writes to standard error if that is a terminal, else to the log.

    What is happening stands in the last line beside the time since the beginning, and is gone at
    the end; what has been found stays. One within another has a line below it. The log, at INFO,
    has all but steps that follow another line within ten seconds.
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
    """Yield `items`, with a bar on standard error while it is a terminal.

    Without `redraws` it is drawn between two of them alone, by no thread that would be timed, too.
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
    """Import rich without its draw from Python's random generator, the one of users' own loops."""
    state = random.getstate()
    try:
        import rich.style  # noqa: F401 (it draws when it is imported)
    finally:
        random.setstate(state)


@contextmanager
def _shown() -> Iterator["Progress"]:
    """Give what shows narrators here: that of the one around, or a new one."""
    known = _SHOWN.get()
    if known is not None:
        yield known
        return
    _load_rich()
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # the file by name: whoever replaces sys.stderr meanwhile does not silence the narrator
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        token = _SHOWN.set(progress)
        try:
            yield progress
        finally:
            _SHOWN.reset(token)
