"""Time the export of long networks to ONNX, float and int8, against torch's own float export.

A network is a chain of linear, ReLU, product and sum; times are CPU seconds of one process,
the three exports one after another.

python benchmarks/export_time.py 400 1600
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch import nn
from typing_extensions import override

import nncfx

HEADER: Final = "| operations | torch, float, s | float, s | int8, s | int8 / torch |"
PER_LAYER: Final = 4


class Chain(nn.Module):
    """`layers` times four operations."""

    def __init__(self, layers: int) -> None:
        """Build the linear layers."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x)) * 0.5 + x
        return x


def seconds(function: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def row(operations: int, folder: Path) -> str:
    """Return the row of a chain of so many operations."""
    x = torch.randn(2, 16)
    model = Chain(operations // PER_LAYER).eval()
    quantized = nncfx.quantize(model, [x])
    axes = ({0: "batch"},)
    file = folder / "model.onnx"
    torchs = seconds(
        lambda: torch.onnx.export(
            model, (x,), file, dynamo=True, verbose=False, dynamic_shapes=axes
        )
    )
    plain = seconds(lambda: nncfx.export_onnx(model, file, x))
    integers = seconds(lambda: nncfx.export_onnx(quantized, file, x))
    return (
        f"| {operations} | {torchs:.1f} | {plain:.1f} | {integers:.1f} | {integers / torchs:.2f} |"
    )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("operations", nargs="*", type=int, default=[400, 1600])
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        row(PER_LAYER, Path(folder))  # the first export imports and registers
        print(f"{HEADER}\n|---:|---:|---:|---:|---:|")
        for operations in chosen.operations:
            print(row(operations, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
