"""Write a model of other float types in float32 if its file could not run otherwise."""

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.export.ir.graph_edits import input_of
from nncfx.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

_LOGGER = logging.getLogger(__name__)
_TYPE_ATTRIBUTES: Final = ("to", "dtype")


def upcast_to_float32(model: "ir.Model", target: Target) -> None:
    """Change `model`, in place, to compute in float32 instead of other float types, if needed.

    This is needed if the model is quantized, because scales are float32 and would change in 16
    bits, and no runtime combines integers with float64; and for bfloat16 if the target lacks such
    kernels. The values of 16-bit weights do not change, inputs and outputs become float32, and
    results between operations are no longer rounded to 16 bits. The change is logged.
    """
    import onnx_ir as ir

    quantized = {
        input_of(node).dtype for node in model.graph.all_nodes() if is_fake_quantize(node)
    }
    # operations that a float32 model computes in float64 on purpose stay
    other = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16} | (quantized & {ir.DataType.DOUBLE})
    found = {one.dtype for one in _values(model) if one.dtype is not None} & other
    if not quantized and (target.bfloat16 or ir.DataType.BFLOAT16 not in found):
        return
    if not found:
        return
    for node in model.graph.all_nodes():
        for attribute in list(node.attributes.values()):
            _widen_attribute(node, attribute, found)
    for value in _values(model):
        if value.dtype in found:
            if value.const_value is not None:
                value.const_value = _wide(value.const_value)
            value.type = ir.TensorType(ir.DataType.FLOAT)
    _drop_idle_casts(model)
    _LOGGER.warning(
        "The model computes in %s, and %s: the file for '%s' computes in float32, with weights, "
        "inputs and outputs in float32.",
        " and ".join(sorted(one.name.lower() for one in found)),
        "the scales of integers are float32" if quantized else "there are no such kernels",
        target.name,
    )


def _values(model: "ir.Model") -> "Iterable[ir.Value]":
    """Return inputs, constants and results of the graph and of its subgraphs."""
    seen = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph.all_nodes():
        seen += [one for one in node.inputs if one is not None]
        seen += node.outputs
    return dict.fromkeys(seen)


def _wide(tensor: "ir.TensorProtocol") -> "ir.TensorProtocol":
    import onnx_ir as ir

    return ir.tensor(np.asarray(tensor.numpy().astype(np.float32)), name=tensor.name)


def _widen_attribute(node: "ir.Node", given: "ir.Attr", found: "set[ir.DataType]") -> None:
    import onnx_ir as ir

    if given.type == ir.AttributeType.TENSOR and given.value.dtype in found:
        node.attributes[given.name] = ir.AttrTensor(given.name, _wide(given.value))
    is_type = given.name in _TYPE_ATTRIBUTES and given.type == ir.AttributeType.INT
    if is_type and given.value in {int(one) for one in found}:
        node.attributes[given.name] = ir.AttrInt64(given.name, int(ir.DataType.FLOAT))


def _drop_idle_casts(model: "ir.Model") -> None:
    """Remove casts from float32 to float32, which would hide patterns from rewriters."""
    for node in list(model.graph.all_nodes()):
        source = node.inputs[0] if node.inputs else None
        if node.op_type != "Cast" or source is None or node.outputs[0].dtype != source.dtype:
            continue
        if node.outputs[0].is_graph_output():
            continue
        node.outputs[0].replace_all_uses_with(source)
        if node.graph is not None:
            node.graph.remove(node, safe=True)
