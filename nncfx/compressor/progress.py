"""What a person at a terminal sees while a search runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console

__all__ = ["Narrator", "narrated"]


class Narrator(Protocol):
    """Tells what is going on now, and what has been found."""

    def now(self, text: str) -> None:
        """Show `text` as what is going on."""

    def found(self, text: str) -> None:
        """Leave `text` as a line of its own."""


class _Silent:
    def now(self, text: str) -> None:
        """Say nothing: nobody is looking."""

    def found(self, text: str) -> None:
        """Say nothing: nobody is looking."""


@contextmanager
def narrated(title: str) -> Iterator[Narrator]:
    """Give a narrator that writes to standard error if that is a terminal, else is silent."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Silent()
        return
    with console.status(title) as status:

        class _Terminal:
            def now(self, text: str) -> None:
                status.update(f"{title}: {text}")

            def found(self, text: str) -> None:
                console.print(f"{title}: {text}", highlight=False)

        yield _Terminal()
