"""How much of every model of a zoo ONNX Runtime computes in integers, and how exactly.

Weights are random, batch norms settled on random inputs. Each model is quantized by
`nncfx.quantize` on a few random examples, written by `export_onnx` and run. "of float" is how far
the simulation is from the model in float, "of simulation" how far the runtime is from the
simulation with integers (`integer_arithmetic`): 20 log10 of a root mean square over the other, in
decibel; more is nearer. In a model with random weights the former says little of its accuracy.

    python benchmarks/quantized_coverage.py pytorchcv --pixels 96 [--only NAME ...] [--table FILE]

The last line counts; what does not export or run is a row with the error.
"""

import argparse
import gc
import math
import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from thin_coverage import EXPERTS, FIXED_IMAGES, brief, subjects
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree
from trace_zoos import ZOOS, Subject

import nncfx
from nncfx.errors import machine_fault
from nncfx.quantization import integer_arithmetic
from nncfx.runtimes import BuildOptions, integer_kernels, runtime_named
from nncfx.tracing import run
from nncfx.tracing.calls.tensors import tensors_in

HEADER = (
    "| model | integer | float | file | of float | of simulation |\n|---|---:|---|---:|---:|---:|"
)
SHOWN = 3


def settled(subject: Subject, pixels: int | None) -> tuple[nn.Module, Any]:
    """Return a model whose batch norms have seen its inputs, and these."""
    torch.manual_seed(0)
    model, inputs = subject.make()
    if subject.name in EXPERTS:
        model.set_experts_implementation("batched_mm")
    if pixels and not subject.name.startswith(FIXED_IMAGES):
        inputs = inputs[..., :pixels, :pixels]
    norms = [one for one in model.modules() if isinstance(one, _BatchNorm)]
    for norm in norms:
        norm.momentum = None
        norm.train()
    with torch.no_grad():
        model.eval()
        for norm in norms:
            norm.train(norm.affine)
        run(model, further(inputs))
    return model.eval(), inputs


def further(inputs: Any) -> Any:  # noqa: ANN401 (as models take them)
    """Return eight times as many examples, shifted along the last axis, for norms to settle on."""

    def shifted(one: torch.Tensor) -> torch.Tensor:
        return torch.cat([one.roll(shift * one.shape[-1] // 8, -1) for shift in range(8)])

    return pytree.tree_map_only(torch.Tensor, shifted, inputs)


def check(subject: Subject, options: argparse.Namespace) -> str:
    """Return the row of one model; raises whatever goes wrong."""
    model, inputs = settled(subject, options.pixels)
    with torch.no_grad():
        expected = outputs(run(model, inputs))
    quantized = nncfx.quantize(model, [inputs])
    with torch.no_grad(), integer_arithmetic(quantized):
        simulated = outputs(run(quantized, inputs))
    with tempfile.TemporaryDirectory() as folder:
        file = nncfx.export_onnx(quantized, Path(folder) / "int8.onnx", inputs)
        kernels = integer_kernels(file.path, inputs)
        with runtime_named("onnxruntime").build(file.path, BuildOptions(threads=1)) as session:
            executed = [one for one in session.run(inputs) if one.dtype.kind == "f"]
    dense = sum(one.numel() * one.element_size() for one in model.state_dict().values())
    total = len(kernels.integer) + len(kernels.float)
    left = ", ".join(kernels.float[:SHOWN]) + (" ..." if len(kernels.float) > SHOWN else "")
    return (
        f"| {subject.name} | {len(kernels.integer)} of {total} | {left} "
        f"| {dense / file.size_bytes:.1f}x | {likeness(simulated, expected)} "
        f"| {likeness(executed, simulated)} |"
    )


def outputs(result: object) -> list[Any]:
    """Return the outputs that are numbers with a fraction, as arrays."""
    return [one.numpy() for one in tensors_in(result) if one.is_floating_point()]


def likeness(found: list[Any], wanted: list[Any]) -> str:
    """Return the least likeness of pairs of arrays in decibel; equal ones have none."""
    if [one.shape for one in found] != [one.shape for one in wanted]:
        return f"shapes {[one.shape for one in found]}, not {[one.shape for one in wanted]}"
    ratios = []
    for here, there in zip(found, wanted, strict=True):
        error = float(np.square(here.astype(np.float64) - there).sum())
        power = float(np.square(there.astype(np.float64)).sum())
        if not error <= power * 1e12:
            return "not finite"
        if error:
            ratios.append(10 * math.log10(power / error) if power else -math.inf)
    return f"{min(ratios):.0f}" if ratios else "equal"


def common_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments that every sweep over a zoo takes, and those of `parser`."""
    parser.add_argument("zoo", choices=ZOOS)
    parser.add_argument("--only", nargs="*", default=[], help="names of models")
    parser.add_argument("--table", type=Path, help="file of rows; models in it are not run again")
    parser.add_argument("--pixels", type=int, help="side of images, where a model takes any")
    parser.add_argument("--trace", action="store_true", help="print tracebacks")
    return parser.parse_args()


def sweep(
    options: argparse.Namespace, header: str, row_of: Callable[[Subject, argparse.Namespace], str]
) -> None:
    """Print a table in Markdown with a row for each chosen model, and count."""
    warnings.simplefilter("ignore")
    table = options.table or Path(os.devnull)
    rows = table.read_text().splitlines()[2:] if table.is_file() else []
    done = {row.split("|")[1].strip() for row in rows}
    print("\n".join([header, *rows]), flush=True)
    with table.open("a") as file:
        if not rows:
            print(header, file=file)
        for subject in subjects(options.zoo):
            if subject.name in done or (options.only and subject.name not in options.only):
                continue
            try:
                rows.append(row_of(subject, options))
            except Exception as error:
                if machine_fault(error) is not None:
                    raise  # says nothing of the model
                if options.trace:
                    traceback.print_exc(file=sys.stderr)
                columns = header.partition("\n")[0].count("|") - 3
                rows.append(f"| {subject.name} | FAIL: {brief(error)} " + "| " * columns + "|")
            print(rows[-1], flush=True)
            print(rows[-1], file=file, flush=True)
            gc.collect()
    failed = Counter("failed" if "| FAIL" in row else "run" for row in rows)
    print(f"\n{len(rows)} models: " + ", ".join(f"{n} {word}" for word, n in failed.items()))


def main() -> None:
    """Run the chosen models and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sweep(common_options(parser), HEADER, check)


if __name__ == "__main__":
    main()
