"""Write an ONNX file, with the weights of a big model beside it."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from nncfx.errors import ExportError

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["write_onnx"]

_ONE_FILE: Final = 2**28
"""Bytes of weights up to which they stand in the file itself.

A message of them, its bytes and what the checker reads are three models beside the model; a file
of weights is written tensor after tensor. protobuf itself goes up to 2 GiB.
"""


def write_onnx(model: "ir.Model", path: Path) -> None:
    """Write `model` to the file `path`, and check it.

    Args:
        model: left as it was.
        path: a file in a folder of its own; weights of more than 256 MiB go into `path` + `.data`.

    Raises:
        ExportError: the graph is not valid ONNX.
    """
    import onnx
    import onnx_ir as ir

    constants = [one.const_value for one in model.graph.initializers.values()]
    size = sum(one.nbytes for one in constants if one is not None)
    ir.save(model, path, external_data=f"{path.name}.data" if size > _ONE_FILE else None)
    try:
        onnx.checker.check_model(path, full_check=True)
    except Exception as error:
        raise ExportError(f"The exported graph is not valid ONNX: {error}") from error
