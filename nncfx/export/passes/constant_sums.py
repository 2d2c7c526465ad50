"""Rows of rectifiers and sums with constants, which thinning leaves of dead branches, in one."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    input_of,
    new_node,
    replace_node,
    sole_consumer,
)
from nncfx.export.ir.layer_inputs import BIAS
from nncfx.export.passes.dead_branches import CONVOLUTIONS, bias_of

if TYPE_CHECKING:
    import onnx_ir as ir

_IMAGES: Final = 4
"""Axes of a batch of images."""


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
        if layer is None or layer.op_type not in CONVOLUTIONS or layer.domain:
            continue
        if not all(map(sole_consumer, {value, layer.outputs[0]})):
            continue
        bias = bias_of(layer)
        terms = None if bias is None else _of_channels(bias + shift, layer.outputs[0].shape)
        if bias is None or terms is None:
            continue
        layer.resize_inputs(BIAS + 1)
        name = f"{value.name}_bias"
        layer.replace_input_with(BIAS, add_constant(graph, name, terms.astype(bias.dtype)))
        return True
    return False
