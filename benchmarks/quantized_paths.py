"""Whole zoos through the other ways out: weights alone, torch's programs, OpenVINO.

As `quantized_coverage.py`, of which it has models, comparison and resumable table. Ways:

* weights8, weights4, gptq4: `quantize_weights` (4 bits in groups of 16), ONNX, ONNX Runtime.
  "stored" counts the matrices of the file in 8 or 4 bits, "float" names the others; "smaller"
  compares bytes of constants; "of simulation" is with the inputs of products in float, "8-bit
  inputs" as ONNX Runtime computes.
* program: `quantize`, `export_program`; "ready" counts the layers that read integers as Inductor
  looks for them, "of simulation" is the program, "read back" what `torch.export.load` returns of
  it, "compiled" (with --compile) Inductor's and how many of its calls are integer kernels.
* openvino: `quantize(target="openvino")` with weights of 7 bits, ONNX, OpenVINO. "integer" counts
  the convolutions and products that it computes in integers.

    python benchmarks/quantized_paths.py weights4 transformers [--only NAME ...] [--table FILE]
"""

import argparse
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import onnx
import openvino
import torch
from onnx import TensorProto
from quantized_coverage import common_options, likeness, outputs, settled, sweep
from torch import nn
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code
from trace_zoos import Subject

import nncfx
from nncfx.export import export_program
from nncfx.quantization import QuantizeOptions, quantize_weights
from nncfx.runtimes import BuildOptions, runtime_named
from nncfx.tracing import run

# ruff: noqa: ANN401 (inputs are whatever models take)

SHOWN: Final = 3
SMALLEST: Final = 256
"""Fewer values than this are no matrix worth packing."""

WHOLE: Final = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})
PRODUCTS: Final = frozenset({"Convolution", "GroupConvolution", "FullyConnected", "MatMul"})


def weights(subject: Subject, options: argparse.Namespace) -> str:
    """Return the row of a model with quantized weights."""
    model, inputs = settled(subject, options.pixels)
    dense = size_of(model)
    with torch.no_grad():
        expected = outputs(run(model, inputs))
    bits = int(options.way[-1])
    quantized = quantize_weights(
        model,
        [inputs],
        bits=bits,  # type: ignore[arg-type]  (4 or 8, by the choices)
        group_size=16 if bits == 4 else None,  # noqa: PLR2004 (bits)
        method="gptq" if options.way.startswith("gptq") else "round",
    )
    with torch.no_grad():
        simulated = outputs(run(quantized, inputs))
    with tempfile.TemporaryDirectory() as folder:
        file = nncfx.export_onnx(quantized, Path(folder) / "small.onnx", inputs)
        by_default = executed("onnxruntime", file.path, inputs)
        low, left, stored = matrices(onnx.load(file.path))
        exactly = executed("onnxruntime", with_float_inputs(file.path), inputs)
    return (
        f"| {subject.name} | {low} | {shown(left)} | {dense / stored:.1f}x "
        f"| {likeness(simulated, expected)} | {likeness(exactly, simulated)} "
        f"| {likeness(by_default, simulated)} |"
    )


def program(subject: Subject, options: argparse.Namespace) -> str:
    """Return the row of a model as a program of torch."""
    model, inputs = settled(subject, options.pixels)
    quantized = nncfx.quantize(model, [inputs])
    with torch.no_grad():
        simulated = outputs(run(quantized, inputs))
    exported = export_program(quantized, inputs)
    layers = [reads for one in exported.graph.nodes if (reads := operands(one))]
    ready = sum(reads == ["dequantize_per_tensor", "dequantize_per_channel"] for reads in layers)
    fakes = sum("fake_quantize" in str(node.target) for node in exported.graph.nodes)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        computed = outputs(run(exported.module(), inputs))
        torch.export.save(exported, Path(folder) / "program.pt2")
        loaded = torch.export.load(Path(folder) / "program.pt2")
        again = outputs(run(loaded.module(), inputs))
        compiled = inductor(exported, inputs, simulated) if options.compile else ""
    return (
        f"| {subject.name} | {ready} of {len(layers)} | {fakes} | {likeness(computed, simulated)} "
        f"| {likeness(again, computed)} | {compiled} |"
    )


def operands(node: torch.fx.Node) -> list[str]:
    """Return the operators that a layer's factors come from; nothing if `node` has no weight."""
    kind = str(node.target).partition(".")[2].partition(".")[0]
    first = {"addmm": 1, "conv1d": 0, "conv2d": 0, "conv3d": 0, "linear": 0, "matmul": 0, "mm": 0}
    if node.op != "call_function" or kind not in first:
        return []
    factors = node.args[first[kind] : first[kind] + 2]
    turned = [one.args[0] if "aten.t." in str(one.target) else one for one in factors]
    names = [str(one.target).partition(".")[2].partition(".")[0] for one in turned]
    is_layer = kind != "matmul" or turned[1].op == "placeholder" or "channel" in names[1]
    return names if is_layer else []


def inductor(exported: torch.export.ExportedProgram, inputs: Any, simulated: list[Any]) -> str:
    """Return how near Inductor's code is, and how many of its calls are integer kernels."""
    with inductor_config.patch(freezing=True):
        compiled = torch.compile(exported.module())
        result, code = run_and_get_code(run, compiled, inputs)
    calls = [line for one in code for line in one.splitlines() if "torch.ops.onednn.q" in line]
    kernels = sum(kind in line for line in calls for kind in ("qlinear_pointwise", "qconv"))
    return f"{likeness(outputs(result), simulated)}, {kernels} kernels"


def in_openvino(subject: Subject, options: argparse.Namespace) -> str:
    """Return the row of a model in OpenVINO."""
    model, inputs = settled(subject, options.pixels)
    dense = size_of(model)
    with torch.no_grad():
        expected = outputs(run(model, inputs))
    quantized = nncfx.quantize(
        model, [inputs], target="openvino", options=QuantizeOptions(overflow_fix="enable")
    )
    with torch.no_grad():
        simulated = outputs(run(quantized, inputs))
    with tempfile.TemporaryDirectory() as folder:
        file = nncfx.export_onnx(quantized, Path(folder) / "o.onnx", inputs, target="openvino")
        found = executed("openvino", file.path, inputs)
        integer, left = openvino_kernels(file.path)
    return (
        f"| {subject.name} | {integer} of {integer + len(left)} | {shown(left)} "
        f"| {dense / file.size_bytes:.1f}x | {likeness(simulated, expected)} "
        f"| {likeness(found, simulated)} | {likeness(found, expected)} |"
    )


def openvino_kernels(path: Path) -> tuple[int, list[str]]:
    """Return how many convolutions and products OpenVINO computes in integers, and the others."""
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    integer, left = 0, []
    for node in compiled.get_runtime_model().get_ops():
        facts = node.get_rt_info()
        if str(facts["layerType"].value) in PRODUCTS:
            if str(facts["runtimePrecision"].value) in {"i8", "u8"}:
                integer += 1
            else:
                left.append(node.get_friendly_name())
    return integer, left


def executed(runtime: str, path: Path, inputs: Any) -> list[Any]:
    """Return the outputs with a fraction of a file in a runtime."""
    with runtime_named(runtime).build(path, BuildOptions(threads=1)) as session:
        return [one for one in session.run(inputs) if one.dtype.kind == "f"]


def matrices(file: onnx.ModelProto) -> tuple[int, list[str], int]:
    """Return how many matrices a file has in integers, the names of others, and all bytes."""
    low, left, stored = 0, [], 0
    for tensor in file.graph.initializer:
        stored += tensor.ByteSize()
        if len(tensor.dims) > 1 and math.prod(tensor.dims) >= SMALLEST:
            low += tensor.name.rstrip("_0123456789").endswith("_integers")
            if tensor.data_type in WHOLE and not tensor.name.endswith("_scale"):
                left.append(tensor.name)
    return low, left, stored


def with_float_inputs(path: Path) -> Path:
    """Return a file whose packed products leave their inputs in float."""
    file = onnx.load(path)
    for node in file.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 1
    onnx.save(file, path.with_name("exact.onnx"))
    return path.with_name("exact.onnx")


def size_of(model: nn.Module) -> int:
    """Return the bytes of a model's values, shared ones once."""
    return sum(one.numel() * one.element_size() for one in {*model.parameters(), *model.buffers()})


def shown(names: Iterable[str]) -> str:
    """Return the first names."""
    names = list(names)
    more = f" and {len(names) - SHOWN}" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


COMPARED: Final = "of float | of simulation"
WAYS: Final = {
    **dict.fromkeys(
        ("weights8", "weights4", "gptq4"),
        (weights, f"model | stored | float | smaller | {COMPARED} | 8-bit inputs"),
    ),
    "program": (program, "model | ready | fake | of simulation | read back | compiled"),
    "openvino": (in_openvino, f"model | integer | float | file | {COMPARED} | OpenVINO of float"),
}


def main() -> None:
    """Run the chosen models and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--compile", action="store_true", help="compile programs by Inductor")
    options = common_options(parser)
    row_of, columns = WAYS[options.way]
    ruler = "|---" * (columns.count("|") + 1) + "|"
    sweep(options, f"| {columns} |\n{ruler}", row_of)


if __name__ == "__main__":
    main()
