"""Let a table of embeddings and the matrix that it is tied to be stored once."""

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.graph_edits import (
    constant_of,
    input_of,
    replace_node,
    shared_constant,
    sole_consumer,
)

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["share_tied_tables"]

_MIDDLE: Final = 128
"""Of packed bytes, which are unsigned: what stands for zero."""


def share_tied_tables(graph: "ir.Graph") -> None:
    """Look rows up in the packed integers of a product, where it has the same ones.

    Language models often read one matrix as a table at their beginning and as a layer at their
    end; packed for `MatMulNBits`, it would lie in the file a second time. Only bytes: of two
    integers in a byte, older versions of ONNX Runtime look up no rows.
    """
    packed = {input_of(node, 1): None for node in graph if node.op_type == "MatMulNBits"}
    for node in [one for one in graph if one.op_type == "Gather" and not one.domain]:
        table, cast = constant_of(node.inputs[0]), sole_consumer(node.outputs[0])
        if table is None or table.dtype != np.int8 or cast is None or cast.op_type != "Cast":
            continue
        same = next((one for one in packed if _holds(one, table)), None)
        axes = input_of(node, 1).shape
        if same is not None and axes is not None:
            _look_up(node, cast, same, [*[0] * len(axes), table.shape[1]])


def _holds(packed: "ir.Value", table: npt.NDArray[np.int8]) -> bool:
    """Return whether the bytes of `packed`, o x blocks x block, are those of `table`."""
    if packed.shape is None or packed.shape[0] != len(table):
        return False
    values = constant_of(packed)
    if values is None or values.size != table.size:  # padded rows have more, half bytes fewer
        return False
    signed = values.reshape(table.shape).astype(np.int16) - _MIDDLE
    return np.array_equal(signed, table)


def _look_up(look_up: "ir.Node", cast: "ir.Node", packed: "ir.Value", sizes: list[int]) -> None:
    """Let `cast`, behind the look-up of int8, give what `packed` holds in that row.

    Args:
        look_up: A `Gather` of a table, which goes.
        cast: To float, right behind it.
        packed: The bytes of a `MatMulNBits`, with the integers of the table.
        sizes: Of the rows that are looked up; 0 for an axis of the indices.
    """
    import onnx_ir as ir

    graph = look_up.graph
    assert isinstance(graph, ir.Graph)  # noqa: S101 (it comes out of one)
    shape = shared_constant(graph, f"rows_of_{sizes[-1]}_{len(sizes)}", np.array(sizes))
    middle = shared_constant(graph, "middle_of_bytes", np.array(_MIDDLE, np.float32))
    blocks = ir.node("Gather", [packed, input_of(look_up, 1)], {"axis": 0})
    rows = ir.node("Reshape", [blocks.outputs[0], shape])
    counted = ir.node("Cast", [rows.outputs[0]], {"to": ir.DataType.FLOAT})
    kinds = (ir.DataType.UINT8, ir.DataType.UINT8, ir.DataType.FLOAT)
    for node, kind in zip((blocks, rows, counted), kinds, strict=True):
        node.outputs[0].type = ir.TensorType(kind)
        node.metadata_props.update(look_up.metadata_props)
    graph.insert_before(cast, [blocks, rows, counted])
    centred = ir.node(
        "Sub", [counted.outputs[0], middle], metadata_props=dict(look_up.metadata_props)
    )
    replace_node(cast, centred, graph)
    graph.remove(look_up, safe=True)
