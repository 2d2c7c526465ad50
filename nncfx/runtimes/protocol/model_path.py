"""The path of the ONNX file for a runtime."""

from pathlib import Path

from torch import nn

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.protocol.runtime import ModelSource


def onnx_path(source: ModelSource, runtime: str) -> Path:
    """Return `source` as the path of an existing file.

    Raises:
        RuntimeFailure: it is a module, or there is no such file.
    """
    if isinstance(source, nn.Module):
        raise RuntimeFailure(
            f"Runtime '{runtime}' reads ONNX files, and {type(source).__name__} is a module. "
            "Export it first: nncfx.export_onnx(model, path, example_inputs)."
        )
    path = Path(source)
    if not path.is_file():
        raise RuntimeFailure(f"There is no file '{path}' for runtime '{runtime}' to read.")
    return path


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, before a runtime's own traces."""
    return str(error).strip().partition("\n")[0]
