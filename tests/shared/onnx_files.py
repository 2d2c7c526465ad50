"""ONNX files as ONNX Runtime computes them."""

from pathlib import Path

import numpy as np

from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, runtime_named


def run_file(file: Path | ExportResult, inputs: object) -> list[np.ndarray]:
    """Return the outputs of one call, in one thread."""
    with runtime_named("onnxruntime").build(file, BuildOptions(threads=1)) as session:
        return session.run(inputs)
