"""Formats errors of nncfx for a terminal."""

import textwrap
from pathlib import Path
from typing import Final

from nncfx.errors import NNCFXError, users_line

FAULT: Final = 2
"""The exit code of every error that nncfx raises on purpose."""


def fault_text(error: NNCFXError) -> str:
    r"""Return the error as one paragraph of at most 88 columns; its own line breaks stay.

    If user code raised the original error, the line of that code follows below.

    >>> from nncfx.errors import StorageError
    >>> fault_text(StorageError("'a.nncfx' is cut off. Copy it again."))
    "StorageError: 'a.nncfx' is cut off. Copy it again.\n"
    """
    lines = f"{type(error).__name__}: {error}".splitlines()
    # do not break paths and addresses, so that they can be copied
    wrapped = (
        textwrap.fill(line, 88, break_long_words=False, break_on_hyphens=False) for line in lines
    )
    return "\n".join([*wrapped, *_raised_by(error)]) + "\n"


def _raised_by(error: NNCFXError) -> list[str]:
    line = None if error.__cause__ is None else users_line(error)
    if line is None:
        return []
    place = f"{Path(line.filename).name}, line {line.lineno}"
    return [] if place in str(error) else [f"  {place}: {line.line}"]
