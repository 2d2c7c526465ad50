"""Write fake-quantized tensors as QuantizeLinear and DequantizeLinear."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.export_pass import Draft
from nncfx.export.ir.fake_quantize import DOMAIN, Grid, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    new_node,
    replace_node,
    shared_constant,
)
from nncfx.export.ir.integer_weights import IntegerWeight, store
from nncfx.export.ir.number_types import activation_grid, number_type

if TYPE_CHECKING:
    import onnx_ir as ir


def write_pairs(draft: Draft) -> None:
    """Write each fake-quantize as a pair of nodes, or as one node if it reads a constant."""
    graph = draft.graph
    for node in [one for one in graph if is_fake_quantize(one)]:
        _write_pair(node, activation_grid(grid_of(node), draft.target), graph)


def remove_unused(draft: Draft) -> None:
    """Sort the nodes, and remove unused nodes and the domain of fake-quantize."""
    from onnx_ir.passes.common import unused_removal

    draft.graph.sort()
    unused_removal.RemoveUnusedNodesPass()(draft.model)
    draft.model.opset_imports.pop(DOMAIN, None)


def _zero_point(value: npt.NDArray[Any], name: str, graph: "ir.Graph") -> "ir.Value":
    """Store a zero point; tensors with equal scalar zero points share one constant."""
    shared = name if value.ndim else f"zero_point_{value.dtype}_{value}"
    return shared_constant(graph, shared, value)


def _write_pair(node: "ir.Node", grid: Grid, graph: "ir.Graph") -> None:
    import onnx_ir as ir

    source = input_of(node)
    values = constant_of(source)
    is_joined = all(one.op_type == "Concat" for one in consumers(node.outputs[0]))
    # A quantizer that moved up to a constant stores integers. TensorRT wants floats where the
    # constant is concatenated.
    if values is not None and not is_joined:
        store(IntegerWeight(node=node, integers=grid.integers(values), grid=grid), graph)
        return
    dtype = number_type(grid, signed_first=False)
    constants = [
        add_constant(graph, f"{source.name}_scale", grid.scale),
        _zero_point(grid.zero_point.astype(dtype.numpy()), f"{source.name}_zero_point", graph),
    ]
    producer = source.producer()
    along = {} if grid.axis is None else {"axis": grid.axis}
    quantize = new_node("QuantizeLinear", [source, *constants], producer, along)
    graph.insert_before(node, quantize)
    integers = quantize.outputs[0]
    integers.type, integers.shape = ir.TensorType(dtype), source.shape
    # Some quantizers use fewer integers than their type, such as 4 bits; int8 may lack -128.
    limits = np.iinfo(dtype.numpy())
    least = limits.min + (limits.min < 0)
    if grid.low > least or grid.high < limits.max:
        integers = _clipped(integers, grid, node, graph)
    read = new_node("DequantizeLinear", [integers, *constants], producer, along)
    replace_node(node, read, graph)


def _clipped(integers: "ir.Value", grid: Grid, node: "ir.Node", graph: "ir.Graph") -> "ir.Value":
    """Return the output `integers` of a QuantizeLinear, clipped to `grid` before `node`."""
    import onnx_ir as ir

    quantize, dtype = integers.producer(), integers.dtype
    assert quantize is not None and dtype is not None  # noqa: S101, PT018 (a new node has both)
    # ONNX Runtime has Clip for integers of 8 and 32 bits, but not of 16
    clipped = dtype if dtype.itemsize == 1 else ir.DataType.INT32
    bounds = [
        add_constant(graph, f"{input_of(node).name}_{end}", np.asarray(bound, clipped.numpy()))
        for end, bound in (("low", grid.low), ("high", grid.high))
    ]
    steps: list[tuple[str, list[ir.Value], ir.DataType]] = [("Clip", bounds, clipped)]
    if clipped != dtype:
        steps = [("Cast", [], clipped), *steps, ("Cast", [], dtype)]
    for operator, further, made in steps:
        along = {"to": made} if operator == "Cast" else {}
        one = new_node(operator, [integers, *further], quantize, along)
        graph.insert_before(node, one)
        one.outputs[0].type, one.outputs[0].shape = ir.TensorType(made), integers.shape
        integers = one.outputs[0]
    return integers
