"""ONNX files as text, and as ONNX Runtime computes them."""

from pathlib import Path

import numpy as np
import onnx_ir as ir

from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, runtime_named


def run_file(file: Path | ExportResult, inputs: object) -> list[np.ndarray]:
    """Return the outputs of one call, in one thread."""
    with runtime_named("onnxruntime").build(file, BuildOptions(threads=1)) as session:
        return session.run(inputs)


def parsed(graph: str) -> ir.Model:
    """Return a model from the lines of a graph in ONNX's text format."""
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21, "nncfx" : 1]>\n{graph}')


def operators(model: ir.Model) -> list[str]:
    """Return the operators of a model, in order."""
    return [node.op_type for node in model.graph]
