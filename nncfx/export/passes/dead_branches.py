"""Branches of which thinning left a constant: what is added, without what computed it."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import add_constant, constant_of, consumers, input_of
from nncfx.export.ir.layer_inputs import BIAS, CONTRACTIONS, is_dequantized, stored_integers

if TYPE_CHECKING:
    import onnx_ir as ir

CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})
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
        return bias_of(node) if _is_zero(input_of(node, 1)) else None
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


def bias_of(product: "ir.Node") -> npt.NDArray[Any] | None:
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
    spatial = output.shape.rank() - 2 if product.op_type in CONVOLUTIONS else 0
    return bias.reshape(-1, *(1,) * spatial)
