"""The commands; each calls a function of nncfx."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from typer.core import TyperCommand
from typing_extensions import override

from nncfx._version import __version__
from nncfx.cli.comparing import diff
from nncfx.cli.compressing import compress, demo, resume, status
from nncfx.cli.configuring import configs
from nncfx.cli.console import output_console
from nncfx.cli.exporting import export, quantize
from nncfx.cli.files import check_file, inspect_file, pack, unpack
from nncfx.cli.inspecting import inspect
from nncfx.errors import ArgumentError


def _show_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"nncfx {__version__}\n")
        raise typer.Exit


class _OutputCommand(TyperCommand):
    """A command that suggests --output if the output file is given after the model."""

    @override
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        given = list(args)  # parsing empties the list
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer has its own copy of click's class
            said = getattr(error, "message", "")
            if "unexpected extra argument" in said and "--output" not in given:
                error.message = f"{said}. The file to write is an option: --output FILE"  # type: ignore[attr-defined]
            raise


application = typer.Typer(
    name="nncfx",
    help="Make trained PyTorch models smaller and faster inside an accuracy budget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
application.command()(compress)
application.command()(resume)
application.command()(status)
application.command()(demo)
application.command(cls=_OutputCommand)(export)
application.command(cls=_OutputCommand)(quantize)
application.command()(diff)
application.add_typer(configs, name="config")


@application.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Make trained PyTorch models smaller and faster inside an accuracy budget."""


@application.command()
def version() -> None:
    """Show the versions of nncfx and of the packages it works with."""
    from nncfx.evidence.machine import version_facts

    table = Table("Package", "Version", box=box.SIMPLE_HEAD)
    for name, text in version_facts().items():
        table.add_row(name, text)
    output_console().print(table)


@application.command()
def report(
    evidence: Annotated[Path, typer.Argument(help="Folder of a run, or its evidence (JSON).")],
    output: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write the HTML report of a run from its evidence."""
    from nncfx.evidence.evidence import Evidence
    from nncfx.report import write_report

    file = evidence / "evidence.json" if evidence.is_dir() else evidence
    if evidence.is_dir() and not file.exists():
        raise ArgumentError(
            f"'{evidence}' has no evidence.json: no run has ended there. For a page of the "
            "results so far: "
            + shlex.join(["nncfx", "status", str(evidence), "--html", str(output)])
        )
    if output.resolve() == file.resolve():
        raise ArgumentError(f"'{file}' would be replaced by its report. Name another --output.")
    check_file(file, ending=".json")
    path = write_report(output, Evidence.read(file))
    sys.stdout.write(f"Report written to {path}\n")


application.command()(pack)
application.command()(unpack)
application.command()(inspect)
application.command("inspect-file", hidden=True)(inspect_file)


@application.command()
def benchmark(  # noqa: PLR0913 (each is an option of the command)
    models: Annotated[list[Path], typer.Argument(help="ONNX files; the first is the reference.")],
    *,
    runtime: Annotated[
        list[str] | None,
        typer.Option(help="onnxruntime (the default), openvino, tensorrt, tensorrt_rtx."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time to measure each model for.")] = 3.0,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Examples in a call, axis 0; several in turn.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of one call.")] = None,
    cpus: Annotated[str | None, typer.Option(help="Processors to run on: 0,1.")] = None,
    clock: Annotated[
        str,
        typer.Option(help="wall, cpu, or auto: CPU time of one thread where the machine is busy."),
    ] = "auto",
    input_shape: Annotated[
        list[str] | None,
        typer.Option(
            "--input-shape",
            "--shape",
            help="Shape of an input with open axes: NAME=1x3x224x224, or 1x3x224x224; --batch "
            "replaces axis 0.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="Setting of the runtime: NAME=VALUE. ONNX Runtime ignores entries of its "
            "session's config, such as session.NAME, that it does not know."
        ),
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder to keep built engines in.")] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Also the time of each layer.")] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Also the energy of a call (RAPL, NVML).")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="An earlier output of --json; exit code 3 on a regression.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Fraction by which a time may grow.")] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Time ONNX files on a runtime, interleaved, with intervals."""
    from nncfx.cli.benchmarking import BenchmarkOutput, run_benchmark
    from nncfx.cli.timing.files import TimingRequest
    from nncfx.cli.timing.options import parse_cpus, parse_settings, parse_shapes
    from nncfx.runtimes import BuildOptions, TimingPlan

    for model in models:
        check_file(model, ending=".onnx")
    request = TimingRequest(
        paths=tuple(models),
        runtimes=tuple(runtime or ("onnxruntime",)),
        batches=tuple(batch or (None,)),
        shapes=parse_shapes(input_shape or ()),
        options=BuildOptions(threads=threads, settings=parse_settings(setting or ()), cache=cache),
        plan=TimingPlan(seconds=seconds, clock=clock),
        cpus=parse_cpus(cpus),
        energy=energy,
    )
    output = BenchmarkOutput(
        as_json=as_json, layers=layers, baseline=baseline, tolerance=tolerance
    )
    code = run_benchmark(request, output)
    if code:
        raise typer.Exit(code)
