"""How an error of nncfx is told on a terminal."""

import textwrap
from typing import Final

from nncfx.errors import NNCFXError

__all__ = ["FAULT", "fault_text"]

FAULT: Final = 2
"""The exit code of every error that nncfx raises on purpose."""


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
