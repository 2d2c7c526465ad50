"""The entry point of the command line; it works, and says why, when typer is missing."""

import importlib.util
import sys
import textwrap
from collections.abc import Callable

from nncfx.errors import MissingExtraError, NNCFXError

__all__ = ["app"]

FAULT = 2  # the exit code of every error that nncfx raises on purpose


def app() -> None:
    """Run the command line on `sys.argv`; the process ends with it.

    Exit codes: 0 done; 2 a mistake in the command, a file or the set-up, told in one paragraph
    on standard error; 1 anything else.
    """
    try:
        _application()()
    except NNCFXError as error:
        sys.stderr.write(fault_text(error))
        raise SystemExit(FAULT) from error


def fault_text(error: NNCFXError) -> str:
    r"""Return the error as one paragraph of at most 88 columns; its own line breaks stay.

    >>> from nncfx.errors import StorageError
    >>> fault_text(StorageError("'a.nncfx' is cut off. Copy it again."))
    "StorageError: 'a.nncfx' is cut off. Copy it again.\n"
    """
    lines = f"{type(error).__name__}: {error}".splitlines()
    # a path or an address must stay whole, so that it can be copied
    wrapped = (
        textwrap.fill(line, 88, break_long_words=False, break_on_hyphens=False) for line in lines
    )
    return "\n".join(wrapped) + "\n"


def _application() -> Callable[[], object]:
    if importlib.util.find_spec("typer") is None:
        raise MissingExtraError("typer", "cli", "the command 'nncfx'")
    from nncfx.cli.commands import application

    return application
