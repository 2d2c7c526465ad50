"""Small edits of an ONNX graph: read a constant, add a constant, add a node."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nncfx.errors import ExportError

if TYPE_CHECKING:
    import onnx_ir as ir


def constant_of(value: "ir.Value | None") -> npt.NDArray[Any] | None:
    """Return the constant that `value` holds; None if it is computed or absent."""
    from onnx_ir import convenience

    if value is None or value.is_graph_input():
        return None
    tensor = convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def add_constant(
    graph: "ir.Graph", name: str, array: npt.NDArray[Any], dtype: "ir.DataType | None" = None
) -> "ir.Value":
    """Store `array` in the graph under `name`, or `name_1`, ... if that name is taken.

    Args:
        graph: the graph.
        name: wanted name.
        array: the values.
        dtype: the ONNX type, if numpy has no such type (int4).
    """
    import onnx_ir as ir

    free, number = name, 0
    while free in graph.initializers:
        number += 1
        free = f"{name}_{number}"
    tensor = ir.tensor(np.asarray(array, order="C"), dtype=dtype, name=free)
    value = ir.Value(
        name=free,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(array.shape),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value


def shared_constant(
    graph: "ir.Graph", name: str, array: npt.NDArray[Any], dtype: "ir.DataType | None" = None
) -> "ir.Value":
    """Return the constant `name` if it holds `array` already; else store it as `add_constant`.

    Use it for constants that several layers read and no runtime rewrites for one of them.
    """
    known = constant_of(graph.initializers.get(name))
    if known is not None and known.dtype == array.dtype and np.array_equal(known, array):
        return graph.initializers[name]
    return add_constant(graph, name, array, dtype)


def input_of(node: "ir.Node", index: int = 0) -> "ir.Value":
    """Return input number `index` of `node`, which its operator requires.

    Raises:
        ExportError: the input is missing.
    """
    value = node.inputs[index]
    if value is None:
        raise ExportError(
            f"Node '{node.name}' ({node.op_type}) lacks input {index}; the graph is damaged."
        )
    return value


def nodes_of(graph: "ir.Graph", *operators: str) -> list["ir.Node"]:
    """Return a list of the nodes of some ONNX operators, in order; the graph may change later."""
    return [one for one in graph if one.op_type in operators and not one.domain]


def new_node(
    operator: str,
    inputs: "Sequence[ir.Value | None]",
    beside: "ir.Node | None",
    attributes: Mapping[str, Any] = MappingProxyType({}),
    *,
    domain: str = "",
    like: "ir.Value | None" = None,
) -> "ir.Node":
    """Return a node with one output that is in no graph yet.

    Args:
        operator: its operator.
        inputs: its inputs.
        beside: a node of the module to which it belongs, if any.
        attributes: by name.
        domain: of the operator.
        like: a value with the type and shape of the output; without it, they stay unknown.
    """
    import onnx_ir as ir

    facts = {} if beside is None else dict(beside.metadata_props)
    node = ir.node(operator, inputs, attributes, domain=domain, metadata_props=facts)
    if like is not None:
        node.outputs[0].type, node.outputs[0].shape = like.type, like.shape
    return node


def node_like(node: "ir.Node", inputs: "Sequence[ir.Value | None]") -> "ir.Node":
    """Return a copy of `node`, with one output, that reads `inputs` and is in no graph yet."""
    given = {name: one.value for name, one in node.attributes.items()}
    return new_node(node.op_type, inputs, node, given, domain=node.domain, like=node.outputs[0])


def consumers(value: "ir.Value") -> list["ir.Node"]:
    """Return the nodes that read `value`, each once, in the order of its uses."""
    return list(dict.fromkeys(use.node for use in value.uses()))


def sole_consumer(value: "ir.Value") -> "ir.Node | None":
    """Return the only node that reads `value`; None if several do, or it is a graph output."""
    nodes = consumers(value)
    return nodes[0] if len(nodes) == 1 and not value.is_graph_output() else None


def put_before(layer: "ir.Node", index: int, node: "ir.Node", graph: "ir.Graph") -> None:
    """Insert `node` before `layer` as its input number `index`."""
    graph.insert_before(layer, node)
    layer.replace_input_with(index, node.outputs[0])


def insert_after_value(value: "ir.Value", node: "ir.Node", graph: "ir.Graph") -> None:
    """Insert `node` after the producer of `value`, or first if nothing computes it."""
    producer = value.producer()
    if producer is None:
        graph.insert_before(graph[0], node)
    else:
        graph.insert_after(producer, node)


def replace_node(old: "ir.Node", new: "ir.Node", graph: "ir.Graph") -> None:
    """Replace `old` by `new`, whose output takes over type, shape, name and readers."""
    graph.insert_after(old, new)
    before, after = old.outputs[0], new.outputs[0]
    after.type, after.shape, after.name = before.type, before.shape, before.name
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    graph.remove(old, safe=True)
