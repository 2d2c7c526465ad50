"""The commands; each does one thing that a function of nncfx does."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nncfx.compressor.evidence import Evidence
from nncfx.compressor.machine import version_facts
from nncfx.report import write_report

__all__ = ["application"]

application = typer.Typer(
    name="nncfx",
    help="Make trained PyTorch models smaller and faster inside an accuracy budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@application.command()
def version() -> None:
    """Show the versions of nncfx and of the packages it works with."""
    table = Table("Package", "Version")
    for name, text in version_facts().items():
        table.add_row(name, text)
    Console().print(table)


@application.command()
def report(
    evidence: Annotated[Path, typer.Argument(help="Evidence file that a run wrote (JSON).")],
    output: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write the HTML report of a run from its evidence."""
    path = write_report(output, Evidence.read(evidence))
    Console().print(f"Report written to {path}", soft_wrap=True, markup=False)
