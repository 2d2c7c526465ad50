"""ONNX files of fused integer operators, as ONNX Runtime makes them of QuantizeLinear pairs."""

import os
import secrets
from pathlib import Path

from nncfx.errors import MissingExtraError, RuntimeFailure

__all__ = ["write_operator_form"]


def write_operator_form(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Path:
    """Write the ONNX file at `path` to `target` with the operators that ONNX Runtime runs.

    Pairs of QuantizeLinear and DequantizeLinear become QLinearConv, QGemm and their like where
    ONNX Runtime has such kernels and the scales allow it; the rest stays. The file computes
    exactly what ONNX Runtime computes of the first one, and is for ONNX Runtime only: some of the
    operators are its own ("com.microsoft"). It appears whole or not at all.

    Raises:
        RuntimeFailure: there is no such file, or ONNX Runtime refuses it.
        MissingExtraError: ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "onnxruntime", "fusing operators") from error
    written = Path(target)
    temporary = written.with_name(f".{written.name}.{secrets.token_hex(4)}")
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(temporary)
    try:
        onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        temporary.replace(written)
    except Exception as error:
        raise RuntimeFailure(
            f"ONNX Runtime does not fuse '{os.fspath(path)}': {error}. Export it with "
            "nncfx.export_onnx, and give the path of that file.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return written
