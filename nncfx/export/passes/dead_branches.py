"""Branches of which thinning left a constant: what is added, without what computed it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    new_node,
    replace_node,
    sole_consumer,
)
from nncfx.export.ir.layer_inputs import BIAS, CONTRACTIONS, is_dequantized, stored_integers

if TYPE_CHECKING:
    import onnx_ir as ir

_IMAGES: Final = 4
"""Axes of a batch of images."""
_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})
_FIRST: Final = 4096
"""Entries of a weight that are looked at before all of them are: most have others than zeros."""
_SCALINGS: Final = {"Add": np.add, "Mul": np.multiply}
_ZERO_POINT: Final = 2
"""The input of a DequantizeLinear that is the integer of zero; it may be left out."""
_MOVES: Final = frozenset({"Reshape", "Transpose"})


def leave_out_dead_branches(model: "ir.Model") -> None:
    """Add its bias in place of a product whose weights are all zero.

    It is the same for each pixel, or row, so that it is written once and the sum broadcasts it. A
    branch that ends so is not computed any more: `branch_pruning` then takes layers out, and not
    only their channels. What is computed stays the same, but for infinite inputs.
    """
    from onnx_ir.passes.common import unused_removal

    found = False
    for node in list(model.graph):
        output = node.outputs[0]
        # one after the other: of a sum of two dead branches, one has to keep the full shape
        if _ends_in_sums(output, output.shape) and (values := _returned(node)) is not None:
            constant = add_constant(model.graph, f"{output.name}_constant", values)
            output.replace_all_uses_with(constant)
            _tell_shape(constant)
            found = True
    if found:
        unused_removal.RemoveUnusedNodesPass()(model)


def _tell_shape(constant: "ir.Value") -> None:
    """Let the quantizers behind a constant have its shape, no longer that of the product."""
    for one in filter(is_fake_quantize, consumers(constant)):
        one.outputs[0].shape = constant.shape
        _tell_shape(one.outputs[0])


def _returned(node: "ir.Node | None") -> npt.NDArray[Any] | None:
    """Return what a node returns whatever it reads, as a sum broadcasts it; None if nothing."""
    if node is None or node.domain or node.outputs[0].is_graph_output():
        return None
    if node.op_type in CONTRACTIONS:
        return _bias(node) if _is_zero(input_of(node, 1)) else None
    if node.op_type == "Transpose":
        returned = _returned(input_of(node).producer())
        return None if returned is None else _transposed(returned, node)
    return _scaled(node) if node.op_type in _SCALINGS else None


def _transposed(values: npt.NDArray[Any], node: "ir.Node") -> npt.NDArray[Any]:
    order = node.attributes["perm"].as_ints()
    return values.reshape((1,) * (len(order) - values.ndim) + values.shape).transpose(order)


def _scaled(node: "ir.Node") -> npt.NDArray[Any] | None:
    """Return a constant after the bias of a product of three axes, or the scale of a branch."""
    first, second = (input_of(node, index) for index in (0, 1))
    for dead, constant in ((first, second), (second, first)):
        other = constant_of(constant)
        # asked first: of two computed ones a long sum would be walked again and again
        if other is not None and (returned := _returned(dead.producer())) is not None:
            return np.asarray(_SCALINGS[node.op_type](returned, other))
    return None


def _is_zero(weight: "ir.Value") -> bool:
    source = weight.producer()
    if source is not None and source.op_type in _MOVES:
        return _is_zero(input_of(source))
    values = stored_integers(weight) if is_dequantized(weight) else constant_of(weight)
    if source is not None and len(source.inputs) > _ZERO_POINT and source.inputs[_ZERO_POINT]:
        zero_point = constant_of(source.inputs[_ZERO_POINT])
        if zero_point is None or np.any(zero_point):
            return False
    if values is None or not values.size:
        return False
    return not np.any(values.flat[:_FIRST]) and not np.any(values)


def _ends_in_sums(value: "ir.Value", shape: "ir.Shape | None") -> bool:
    """Say whether all that reads a value are sums with another one of its full `shape`.

    A quantizer with one scale may stand between.
    """
    readers = consumers(value)
    if shape is None or not readers or value.is_graph_output():
        return False
    return all(
        _ends_in_sums(one.outputs[0], shape)
        if is_fake_quantize(one) and grid_of(one).axis is None
        else _is_sum_of(one, value, shape)
        for one in readers
    )


def _is_sum_of(node: "ir.Node", value: "ir.Value", shape: "ir.Shape") -> bool:
    if node.domain or node.op_type != "Add":
        return False
    others = [one for one in node.inputs if one is not value]
    return len(others) == 1 and others[0] is not None and others[0].shape == shape


def _bias(product: "ir.Node") -> npt.NDArray[Any] | None:
    """Return the bias of a product, or zeros without one; None where it is computed."""
    weight, output = input_of(product, 1), product.outputs[0]
    bias: npt.NDArray[Any] | None = None
    if len(product.inputs) > BIAS and product.inputs[BIAS] is not None:
        bias = constant_of(product.inputs[BIAS])
    elif weight.dtype is not None:
        bias = np.zeros(1, weight.dtype.numpy())
    beta = product.attributes.get_float("beta", 1.0)
    if bias is None or output.shape is None or beta != 1:
        return None
    spatial = output.shape.rank() - 2 if product.op_type in _CONVOLUTIONS else 0
    return bias.reshape(-1, *(1,) * spatial)


def merge_constant_sums(graph: "ir.Graph") -> None:
    """Compute a row of rectifiers and sums with constants in one sum, one rectifier, one sum.

    Blocks whose branches are dead leave such a row: max(max(x, 0) + c, 0) ... is max(x + C, M),
    which is relu(x + C - M) + M. The first sum goes into the bias of the layer before it, where
    there is one. Exact but for the rounding of floats, so that models with quantizers keep theirs.
    """
    if any(map(is_fake_quantize, graph)):
        return
    for node in list(graph):
        if node.graph is graph and (row := _row_from(node)).is_worth_merging:
            _merge(row, graph)


@dataclass
class _Row:
    """Rectifiers and sums with constants, each of which only the next one reads.

    Attributes:
        nodes: In their order.
        rectifiers: How many of them are rectifiers.
        added: C of max(x + C, M), what the row computes of its input x.
        least: M; minus infinity without a rectifier.
    """

    nodes: "list[ir.Node]" = field(default_factory=list)
    rectifiers: int = 0
    added: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    least: npt.NDArray[np.float64] = field(default_factory=lambda: np.full(1, -np.inf))

    @property
    def is_worth_merging(self) -> bool:
        """Whether it has two sums, or two rectifiers."""
        return max(self.rectifiers, len(self.nodes) - self.rectifiers) > 1

    def append(self, node: "ir.Node", constant: npt.NDArray[Any] | None) -> None:
        """Add a node: a sum with `constant`, or a rectifier without one."""
        self.nodes.append(node)
        if constant is None:
            self.rectifiers += 1
            self.least = np.maximum(self.least, 0.0)
        else:
            self.added = self.added + constant
            self.least = self.least + constant


def _row_from(first: "ir.Node") -> _Row:
    """Return the longest row that begins with a node."""
    row, node = _Row(), first
    while True:
        constant = _summand(node)
        if constant is None and (node.domain or node.op_type != "Relu"):
            return row
        row.append(node, constant)
        following = sole_consumer(node.outputs[0])
        if following is None:
            return row
        node = following


def _summand(node: "ir.Node") -> npt.NDArray[Any] | None:
    """Return the constant that a node adds to a value, whose shape stays as it is.

    Of finite floats alone: C and M of infinite ones have no difference.
    """
    if node.domain or node.op_type != "Add" or constant_of(_read(node)) is not None:
        return None
    constant = next(
        map(constant_of, filter(lambda one: one is not _read(node), node.inputs)), None
    )
    if constant is None or constant.dtype.kind in "iu" or not np.all(np.isfinite(constant)):
        return None
    shapes = (_read(node).shape, node.outputs[0].shape)
    return constant if shapes[0] is not None and shapes[0] == shapes[1] else None


def _read(node: "ir.Node") -> "ir.Value":
    """Return what a sum adds a constant to, or a rectifier reads: the input that is computed."""
    computed = (number for number, one in enumerate(node.inputs) if constant_of(one) is None)
    return input_of(node, next(computed, 0))


def _merge(row: _Row, graph: "ir.Graph") -> None:
    """Put the sum, the rectifier and the sum that a row comes to in its place."""
    first, last = row.nodes[0], row.nodes[-1]
    value = _read(first)
    merged: list[ir.Node] = []
    if not row.rectifiers:
        merged.append(_sum(value, row.added, graph))
    else:
        shift = row.added - row.least
        if np.any(shift) and not _added_to_bias(value, shift, graph):
            merged.append(_sum(value, shift, graph))
            value = merged[-1].outputs[0]
        merged.append(new_node("Relu", [value], first, like=value))
        if np.any(row.least):
            merged.append(_sum(merged[-1].outputs[0], row.least, graph))
    graph.insert_before(first, merged[:-1])
    replace_node(last, merged[-1], graph)
    graph.remove(row.nodes[-2::-1], safe=True)


def _sum(value: "ir.Value", constant: npt.NDArray[np.float64], graph: "ir.Graph") -> "ir.Node":
    """Return the sum of a value and a constant.

    Of images it is a batch norm with a scale of 1: ONNX Runtime computes that in the blocked
    layout of its convolutions, which it leaves, and enters again, for a sum.
    """
    assert value.dtype is not None  # noqa: S101 (what is added to a constant has its type)
    name, near = f"{value.name}_shifted", value.producer()
    terms = constant.astype(value.dtype.numpy())
    of_channels = _of_channels(terms, value.shape)
    if of_channels is None:
        return new_node("Add", [value, add_constant(graph, name, terms)], near, like=value)
    ones, zeros = np.ones_like(of_channels), np.zeros_like(of_channels)
    parts = [add_constant(graph, name, one) for one in (ones, of_channels, zeros, ones)]
    return new_node("BatchNormalization", [value, *parts], near, {"epsilon": 0.0}, like=value)


def _of_channels(values: npt.NDArray[Any], shape: "ir.Shape | None") -> npt.NDArray[Any] | None:
    """Return one number per channel of images of a `shape`; None where `values` are others."""
    if shape is None or shape.rank() != _IMAGES or not isinstance(shape[1], int):
        return None
    values = values.reshape((1,) * (_IMAGES - values.ndim) + values.shape)
    if values.shape not in {(1, 1, 1, 1), (1, shape[1], 1, 1)}:
        return None
    return np.broadcast_to(values.reshape(-1), (shape[1],))


def _added_to_bias(value: "ir.Value", shift: npt.NDArray[np.float64], graph: "ir.Graph") -> bool:
    """Add `shift` to the bias of the convolution `value` comes from; say whether there is one.

    It may come from the sum of a convolution and something else.
    """
    joined = value.producer()
    is_sum = joined is not None and joined.op_type == "Add" and not joined.domain
    for one in joined.inputs if joined is not None and is_sum else [value]:
        layer = None if one is None else one.producer()
        if layer is None or layer.op_type not in _CONVOLUTIONS or layer.domain:
            continue
        if not all(map(sole_consumer, {value, layer.outputs[0]})):
            continue
        bias = _bias(layer)
        terms = None if bias is None else _of_channels(bias + shift, layer.outputs[0].shape)
        if bias is None or terms is None:
            continue
        layer.resize_inputs(BIAS + 1)
        name = f"{value.name}_bias"
        layer.replace_input_with(BIAS, add_constant(graph, name, terms.astype(bias.dtype)))
        return True
    return False
