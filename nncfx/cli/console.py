"""Where commands print what they were asked for."""

import os
import sys
from typing import Final

from rich.console import Console

__all__ = ["output_console"]

_WIDEST: Final = 1000  # characters; addresses of deep models have some 300


def output_console() -> Console:
    """Return a console for standard output: as wide as its terminal, or as what it prints.

    A pipe or a file has no width, and `grep` finds no address that is cut into lines. `COLUMNS`
    sets the width of either.
    """
    is_open = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDEST if is_open else None)
