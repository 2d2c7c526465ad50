"""How an error of nncfx is told on a terminal."""

import textwrap
from pathlib import Path
from typing import Final

from nncfx.errors import NNCFXError, users_line

FAULT: Final = 2
"""The exit code of every error that nncfx raises on purpose."""


def fault_text(error: NNCFXError) -> str:
    r"""Return the error as one paragraph of at most 88 columns; its own line breaks stay.

    Where code of the user raised what it tells, the line of that code stands below.

    >>> from nncfx.errors import StorageError
    >>> fault_text(StorageError("'a.nncfx' is cut off. Copy it again."))
    "StorageError: 'a.nncfx' is cut off. Copy it again.\n"
    """
    lines = f"{type(error).__name__}: {error}".splitlines()
    # a path or an address must stay whole, so that it can be copied
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
