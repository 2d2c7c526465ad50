"""Store weights of at most four bits two in a byte, where the runtime unpacks them itself."""

from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.ir.graph_edits import add_constant, constant_of, input_of

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["pack_int4"]

_OPSET: Final = 21
"""The first in which a `Cast` reads int4."""
_FEWEST: Final = 64
"""Of integers that are packed: the node that unpacks them takes some bytes, too."""
_LOWEST, _HIGHEST = -8, 7


def pack_int4(model: "ir.Model") -> None:
    """Store int8 weights whose integers fit four bits as int4, behind a `Cast` to int8.

    A runtime that folds constants when it loads a file computes the cast once, so that its
    kernels of int8 get what they would have got: the same integers at the same speed, from half
    of the bytes. A `DequantizeLinear` that reads int4 itself fuses with no kernel of ONNX Runtime.
    """
    import onnx_ir as ir

    graph = model.graph
    if (model.opset_imports.get("") or 0) < _OPSET:
        return
    cast: dict[ir.Value, ir.Value] = {}
    for node in [one for one in graph if one.op_type == "DequantizeLinear" and not one.domain]:
        stored = input_of(node)
        values = constant_of(stored)
        if stored in cast:
            node.replace_input_with(0, cast[stored])
            continue
        if values is None or values.dtype != np.int8 or values.size < _FEWEST:
            continue
        if values.min() < _LOWEST or values.max() > _HIGHEST or stored.dtype != ir.DataType.INT8:
            continue
        packed = add_constant(graph, f"{stored.name}_packed", values, ir.DataType.INT4)
        unpack = ir.node("Cast", [packed], {"to": ir.DataType.INT8})
        unpack.metadata_props.update(node.metadata_props)
        unpack.outputs[0].type, unpack.outputs[0].shape = stored.type, stored.shape
        graph.insert_before(node, unpack)
        cast[stored] = unpack.outputs[0]
        node.replace_input_with(0, unpack.outputs[0])
