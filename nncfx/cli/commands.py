"""The commands; each does one thing that a function of nncfx does."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from nncfx.cli.files import inspect_file, pack, unpack
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
    table = Table("Package", "Version", box=box.SIMPLE_HEAD)
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


application.command()(pack)
application.command()(unpack)
application.command("inspect-file")(inspect_file)


@application.command()
def benchmark(  # noqa: PLR0913 (each is an option of the command)
    models: Annotated[list[Path], typer.Argument(help="ONNX files; others against the first.")],
    *,
    runtime: Annotated[str, typer.Option(help="onnxruntime or openvino.")] = "onnxruntime",
    seconds: Annotated[float, typer.Option(help="Time to measure each model for.")] = 3.0,
    batch: Annotated[int, typer.Option(min=1, help="Size of an open axis 0.")] = 1,
    threads: Annotated[int | None, typer.Option(help="CPU threads of one call.")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Shape of an input with open axes: NAME=1x3x224x224."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Time ONNX files on a runtime, interleaved, with intervals."""
    from nncfx.cli.timing import (
        compare_files,
        comparison_json,
        comparison_table,
        parse_shapes,
    )
    from nncfx.runtimes import BuildOptions, TimingPlan

    found = compare_files(
        models,
        runtime,
        shapes=parse_shapes(shape or ()),
        batch=batch,
        options=BuildOptions(threads=threads),
        plan=TimingPlan(seconds=seconds),
    )
    if as_json:
        typer.echo(json.dumps(comparison_json(found, runtime), indent=1))
    else:
        Console().print(comparison_table(found))
