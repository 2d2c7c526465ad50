"""Where commands print."""

import io
import sys

import pytest
from rich.table import Table
from rich.text import Text

from nncfx.cli.console import output_console

ADDRESS = "/".join(f"Block[stage{i}]" for i in range(20))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stdout", "columns", "is_whole"),
    [(io.StringIO(), None, True), (io.StringIO(), "80", False), (Terminal(), "80", False)],
)
def test_a_pipe_gets_addresses_whole_and_a_terminal_gets_them_folded(
    monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO, columns: str | None, is_whole: bool
) -> None:
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    table = Table()
    table.add_column("address", overflow="fold")
    table.add_row(Text(ADDRESS))
    output_console().print(table)
    assert (ADDRESS in stdout.getvalue()) is is_whole
