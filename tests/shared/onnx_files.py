"""ONNX files as text, and as ONNX Runtime computes them."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import torch
from torch import nn

from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, runtime_named
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.tensors import tensors_in

QUANTIZER = "nncfx.FakeQuantize <axis = -1, quant_min = 0, quant_max = 255>"


def run_file(
    file: Path | ExportResult, inputs: object, runtime: str = "onnxruntime"
) -> list[np.ndarray]:
    """Return the outputs of one call, in one thread."""
    with runtime_named(runtime).build(file, BuildOptions(threads=1)) as session:
        return session.run(inputs)


def assert_file_agrees(
    file: Path | ExportResult,
    model: nn.Module,
    inputs: ExampleInputs,
    runtime: str = "onnxruntime",
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Compare the outputs of a file with those of its model."""
    args, kwargs = as_call(inputs)
    with torch.no_grad():
        expected = tensors_in(model(*args, **kwargs))
    found = [torch.as_tensor(one) for one in run_file(file, inputs, runtime)]
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)


def parsed(graph: str) -> ir.Model:
    """Return a model from the lines of a graph in ONNX's text format."""
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21, "nncfx" : 1]>\n{graph}')


def with_quantizers(
    lines: str, inputs: str = "float[1,4,2,2] x", outputs: str = "float[1,4,2,2] y"
) -> ir.Model:
    """Return a model of lines in which Q is a quantizer, and steps and zero points have names."""
    constants = (
        "<float s = {0.1}, float t = {0.05}, int32 z = {0}, int32 middle = {128}, "
        "float six = {6.0}, float zero = {0.0}>"
    )
    lines = lines.replace("Q(", f"{QUANTIZER} (")
    return parsed(f"g ({inputs}) => ({outputs}) {constants} {{ {lines} }}")


def operators(model: ir.Model) -> list[str]:
    """Return the operators of a model, in order."""
    return [node.op_type for node in model.graph]
