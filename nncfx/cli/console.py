"""The console for the output of commands."""

import json
import os
import sys
from collections.abc import Iterable
from typing import Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_WIDEST: Final = 1000  # characters; addresses of deep models have about 300


def output_console() -> Console:
    """Return a console for standard output: as wide as its terminal, or as its content.

    A pipe or a file has no width, and `grep` cannot find an address that is broken into lines.
    `COLUMNS` sets the width in both cases.
    """
    is_open = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDEST if is_open else None)


def column_table(*heads: str, numbers: Iterable[str] = ()) -> Table:
    """Return a table of columns; those in `numbers` are right-aligned and not wrapped."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for head in heads:
        is_number = head in numbers
        table.add_column(
            escape(head),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    return table


def print_json(document: object) -> None:
    """Print `document`, indented; values that JSON does not support are printed as text."""
    sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")
