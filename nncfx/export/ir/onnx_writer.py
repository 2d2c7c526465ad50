"""Write an ONNX file, with the weights of a large model in a second file."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import torch

from nncfx.errors import ExportError

if TYPE_CHECKING:
    import onnx_ir as ir

_ONE_FILE: Final = 2**28
"""The largest size in bytes of weights that are stored in the file itself.

The protobuf message, its bytes and the checker's copy take the memory of three more models; a
second file is written tensor by tensor. The limit of protobuf itself is 2 GiB.
"""


def write_onnx(model: "ir.Model", path: Path) -> None:
    """Write `model` to the file `path`, and check it.

    Args:
        model: the model, which does not change.
        path: a file in an empty folder; weights of more than 256 MiB go into `path` + `.data`.

    Raises:
        ExportError: the graph is not valid ONNX.
    """
    import onnx
    import onnx_ir as ir

    constants = [one.const_value for one in model.graph.initializers.values()]
    size = sum(one.nbytes for one in constants if one is not None)
    with _rows_in_order(model):
        ir.save(model, path, external_data=f"{path.name}.data" if size > _ONE_FILE else None)
    try:
        onnx.checker.check_model(path, full_check=True)
    except Exception as error:
        raise ExportError(f"The exported graph is not valid ONNX: {error}") from error


@contextmanager
def _rows_in_order(model: "ir.Model") -> Iterator[None]:
    """Copy each non-contiguous constant when it is written.

    The weights of linear layers are transposed views of the user's weights, which numpy would
    write entry by entry, at 20 MB/s.
    """
    import onnx_ir as ir

    before = {}
    for value in model.graph.initializers.values():
        constant = value.const_value
        if not isinstance(constant, ir.Tensor):
            continue
        view = constant.raw
        if not isinstance(view, np.ndarray) or view.flags.c_contiguous:
            continue
        before[value] = constant
        value.const_value = ir.LazyTensor(
            partial(_in_order, view, constant.dtype),
            constant.dtype,
            constant.shape,
            name=constant.name,
        )
    try:
        yield
    finally:
        for value, constant in before.items():
            value.const_value = constant


def _in_order(view: npt.NDArray[Any], dtype: "ir.DataType") -> "ir.TensorProtocol":
    import onnx_ir as ir

    if view.dtype.kind in "fiu" and view.flags.writeable:
        # torch copies by blocks, 3 times as fast as numpy
        return ir.Tensor(torch.from_numpy(view).contiguous().numpy(), dtype)
    return ir.Tensor(np.ascontiguousarray(view), dtype)
