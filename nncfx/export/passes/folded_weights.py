"""Let the runtime decode weights when it loads a file and folds constants.

Weights of at most four bits are stored two per byte; weights of layers that compute in float are
decoded once on loading instead of in each call.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    new_node,
    nodes_of,
    put_before,
    replace_node,
)

if TYPE_CHECKING:
    import onnx_ir as ir

_RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})
_MOVES: Final = frozenset({"Reshape", "Transpose", "Unsqueeze"})
_DECODER: Final = "DequantizeLinear"

_OPSET: Final = 21
"""The first opset in which a `Cast` reads int4."""
_FEWEST: Final = 64
"""The fewest integers to pack, because the node that unpacks them takes some bytes as well."""
_LOWEST, _HIGHEST = -8, 7


def pack_int4(model: "ir.Model") -> None:
    """Store int8 weights whose integers fit four bits as int4, followed by a `Cast` to int8.

    A runtime that folds constants when it loads a file computes the cast once, so its int8 kernels
    get the same integers at the same speed, from half of the bytes. A `DequantizeLinear` that
    reads int4 directly does not fuse with any kernel of ONNX Runtime.
    """
    import onnx_ir as ir

    graph = model.graph
    if not _casts_int4(model):
        return
    cast: dict[ir.Value, ir.Value] = {}
    for node in nodes_of(graph, _DECODER):
        stored = input_of(node)
        if stored in cast:
            node.replace_input_with(0, cast[stored])
            continue
        packed = _packed(stored, graph)
        if packed is None:
            continue
        unpack = new_node("Cast", [packed], node, {"to": ir.DataType.INT8}, like=stored)
        put_before(node, 0, unpack, graph)
        cast[stored] = unpack.outputs[0]


def _casts_int4(model: "ir.Model") -> bool:
    return (model.opset_imports.get("") or 0) >= _OPSET


def _packed(stored: "ir.Value", graph: "ir.Graph") -> "ir.Value | None":
    """Return an int4 constant with the integers of `stored`; None if they cannot be packed."""
    import onnx_ir as ir

    values = constant_of(stored)
    if values is None or values.dtype != np.int8 or values.size < _FEWEST:
        return None
    if values.min() < _LOWEST or values.max() > _HIGHEST or stored.dtype != ir.DataType.INT8:
        return None
    return add_constant(graph, f"{stored.name}_packed", values, ir.DataType.INT4)


def decode_on_loading(model: "ir.Model") -> None:
    """Replace the `DequantizeLinear` of a weight that no integer kernel reads by `Cast` and `Mul`.

    ONNX Runtime folds a `Cast` and a `Mul` of constants when it loads a file, but not a
    `DequantizeLinear`, which it may fuse. It would decode the weights of recurrent layers, and of
    convolutions in files without quantized activations, in each call, which takes as long as the
    layers themselves. The file holds the same integers, and the weights are bitwise the same.
    """
    # with quantized activations, convolutions use integer kernels
    is_quantized = nodes_of(model.graph, "QuantizeLinear")
    layers = _RECURRENT if is_quantized else _RECURRENT | _CONVOLUTIONS
    for node in nodes_of(model.graph, _DECODER):
        if _is_symmetric_weight(node) and _is_read_by(layers, node):
            _write_steps(node, model)


def _is_symmetric_weight(node: "ir.Node") -> bool:
    if "block_size" in node.attributes:
        return False
    found = [constant_of(one) for one in node.inputs if one is not None]
    return all(one is not None for one in found) and not (len(found) > 2 and np.any(found[2]))  # noqa: PLR2004 (zero points, an option)


def _is_read_by(layers: frozenset[str], node: "ir.Node") -> bool:
    """Return whether all readers of a node, past movements, are such layers."""
    readers = consumers(node.outputs[0])
    return bool(readers) and all(
        not one.domain
        and (one.op_type in layers or (one.op_type in _MOVES and _is_read_by(layers, one)))
        for one in readers
    )


def _write_steps(node: "ir.Node", model: "ir.Model") -> None:
    import onnx_ir as ir

    graph, stored, decoded = model.graph, input_of(node), node.outputs[0]
    values, scale = (constant_of(input_of(node, index)) for index in (0, 1))
    assert values is not None and scale is not None  # noqa: S101, PT018 (checked before)
    if scale.ndim:
        axis = node.attributes.get_int("axis", 1)
        scale = scale.reshape([-1 if one == axis else 1 for one in range(values.ndim)])
    steps = add_constant(graph, f"{stored.name}_steps", scale)
    packed = _packed(stored, graph) if _casts_int4(model) else None
    to = {"to": steps.dtype or ir.DataType.FLOAT}
    cast = new_node("Cast", [stored if packed is None else packed], node, to, like=decoded)
    graph.insert_before(node, cast)
    replace_node(node, new_node("Mul", [cast.outputs[0], steps], node), graph)
