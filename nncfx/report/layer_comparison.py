"""Compares two models layer by layer, without a run: channels, MACs and time."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn
from typing_extensions import override

from nncfx.evidence.evidence import LayerRow
from nncfx.evidence.layer_table import layer_rows
from nncfx.export import export_onnx
from nncfx.report.tables import LayerCells, layer_table
from nncfx.runtimes import call_words, compare_profiles
from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.tracing import ExampleInputs

_WIDE = 160


@dataclass(frozen=True, kw_only=True)
class LayerComparison:
    """The layers of a model before and after; prints as a table.

    Attributes:
        rows: one for each layer of the first model, in execution order.
        call: the call that was timed, in words.
    """

    rows: tuple[LayerRow, ...]
    call: str = call_words(None, None)

    @property
    def _cells(self) -> tuple[LayerCells, ...]:
        return layer_table(self.rows)

    def __rich__(self) -> Table:
        """Return a table for a terminal: the layer, then before and after of each quantity."""
        title = f"Times of one call: {self.call}"
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
        table.add_column("Layer", overflow="fold")
        table.add_column("Kernel", no_wrap=True)
        for head in ("Channels", "after", "MACs", "after", "ms", "after", "Speed-up"):
            table.add_column(head, justify="right", no_wrap=True)
        for row in self._cells:
            if not row.kind:  # the total row
                table.add_section()
            table.add_row(row.module, row.kernel, *_figures(row))
        return table

    @override
    def __str__(self) -> str:
        """Return the table as text, without colours."""
        console = Console(width=_WIDE, no_color=True, highlight=False)
        with console.capture() as captured:
            console.print(self.__rich__())
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        head = "| layer | channels | after | MACs | after | ms | after | speed-up |"
        lines = [
            f"| {' '.join(filter(None, (row.module, row.kernel)))} | {' | '.join(_figures(row))} |"
            for row in self._cells
        ]
        told = f"Times of one call: {self.call}."
        return "\n".join([head, "|---|" + "---:|" * 7, *lines, "", told])


def compare_layers(
    before: nn.Module,
    after: nn.Module,
    example_inputs: ExampleInputs,
    *,
    threads: int | None = 1,
    runs: int = 30,
) -> LayerComparison:
    """Return channels, MACs and the time in ONNX Runtime of each layer before and after.

    Both models are exported and run alternately; a layer's time is that of its nodes in the
    profile. Layers that the runtime fused into others have no time.

    Args:
        before: the dense model.
        after: the thinned model, whose layers have the same names.
        example_inputs: the inputs to export and run both models with.
        threads: CPU threads that one run may use; None leaves the choice to the runtime.
        runs: number of measured runs of each model.

    Raises:
        MissingExtraError: ONNX Runtime or the exporter is not installed.
        ExportError: a model cannot be exported.
        RuntimeFailure: ONNX Runtime rejects a model.
        ArgumentError: `runs` is out of range.

    Source: Condensa (Joseph et al., 2019), Table 3.
    """
    with tempfile.TemporaryDirectory(prefix="nncfx-") as folder:
        files = {
            name: export_onnx(
                model, Path(folder) / f"{name}.onnx", example_inputs, dynamic_batch=False
            )
            for name, model in (("before", before), ("after", after))
        }
        profiles = compare_profiles(
            {name: file.path for name, file in files.items()},
            example_inputs,
            modules={name: file.modules for name, file in files.items()},
            threads=threads,
            runs=runs,
        )
    times = {
        name: {one.module: one.ms for one in found.layers} for name, found in profiles.items()
    }
    rows = layer_rows(before, after, example_inputs, (times["before"], times["after"]))
    call = call_words(examples_in(example_inputs), threads)
    return LayerComparison(rows=rows, call=call)


def _figures(row: LayerCells) -> tuple[str, ...]:
    channels = (row.shape_before, row.shape_after)
    times = (row.time_before, row.time_after, row.speedup)
    return (*channels, row.macs_before, row.macs_after, *times)
