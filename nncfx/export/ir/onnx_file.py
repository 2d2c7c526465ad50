"""Read an ONNX file without its external weights."""

import os
from typing import TYPE_CHECKING

from nncfx.errors import ExportError, needing

if TYPE_CHECKING:
    import onnx


def read_onnx(path: str | os.PathLike[str], *, checks: bool = False) -> "onnx.ModelProto":
    """Return the model in the file at `path`; external weights are not read.

    Args:
        path: The file.
        checks: Whether to refuse an invalid graph as well.

    Raises:
        ExportError: the file is not an ONNX model.
        MissingExtraError: onnx is not installed.
    """
    with needing("onnx", "export", "reading an ONNX file"):
        import onnx
    try:
        model = onnx.load(os.fspath(path), load_external_data=False)
        if checks:
            onnx.checker.check_model(os.fspath(path))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ExportError(
            f"'{os.fspath(path)}' is not an ONNX model: {reason}. Check the path."
        ) from error
    return model
