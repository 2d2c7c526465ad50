"""ONNX files of fused integer operators, as ONNX Runtime creates them from QDQ pairs."""

import os
from pathlib import Path

from nncfx.errors import RuntimeFailure, needing
from nncfx.storage.formats.whole_file import writing


def write_operator_form(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Write the ONNX file at `path` to `target` with the operators that ONNX Runtime runs.

    Pairs of QuantizeLinear and DequantizeLinear become QLinearConv, QGemm and similar operators if
    ONNX Runtime has such kernels and the scales allow it; the rest is unchanged. The file computes
    exactly what ONNX Runtime computes for the original, and is for ONNX Runtime only: some of the
    operators are its own ("com.microsoft"). It is written completely or not at all.

    Raises:
        RuntimeFailure: there is no such file, or ONNX Runtime rejects it.
        StorageError: the file cannot be written.
        MissingExtraError: ONNX Runtime is not installed.
    """
    with needing("onnxruntime", "onnxruntime", "fusing operators"):
        import onnxruntime
    written = Path(target)
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.graph_optimization_level = level
    with writing(written) as draft:
        options.optimized_model_filepath = str(draft)
        try:
            onnxruntime.InferenceSession(
                os.fspath(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise RuntimeFailure(
                f"ONNX Runtime does not fuse '{os.fspath(path)}': {error}. Export it with "
                "nncfx.export_onnx, and give the path of that file."
            ) from error
    return written
