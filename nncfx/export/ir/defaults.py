"""Remove defaults and inferable types from a graph."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import onnx_ir as ir

_UNDECLARED: Final[Mapping[str, int]] = MappingProxyType({"strides": 1, "dilations": 1, "pads": 0})
"""Defaults per axis that the specification states in words, but no schema declares."""
_MISREAD: Final = frozenset({("STFT", "onesided")})
"""Defaults that the shape inference of ONNX 1.23 gets wrong."""
_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})


def leave_out_defaults(model: "ir.Model") -> None:
    """Remove attributes at their defaults, and types that can be inferred.

    Results do not change, because the ONNX specification defines the missing parts. Zero points of
    0 are kept: on a CPU without VNNI, ONNX Runtime 1.32 with `session.x64quantprecision` refuses
    files with convolutions that lack them.
    """
    opset = model.opset_imports.get("", 1)
    for node in model.graph.all_nodes():
        if not node.domain:
            _leave_out_attributes(node, opset)
    _leave_out_types(model)


def _leave_out_types(model: "ir.Model") -> None:
    """Drop the types and shapes that ONNX's shape inference finds.

    Others are kept, because ONNX Runtime needs the shapes of a normalization and the sum before it
    to fuse them.
    """
    from onnx_ir.passes.common import shape_inference

    kept = {id(one) for one in model.graph.outputs}
    nodes = [one for one in model.graph if not one.domain]  # ONNX infers nothing for other domains
    values = [one for node in nodes for one in node.outputs if id(one) not in kept]
    inside = [
        one
        for graph in model.graph.subgraphs()
        for one in (*graph.inputs, *(one for node in graph for one in node.outputs))
    ]
    known = [(one.type, one.shape) for one in (*values, *inside)]
    for one in values:
        one.type = one.shape = None
    # not strict: one operation without inference is no reason to keep all types
    inference = shape_inference.ShapeInferencePass(
        check_type=False, strict_mode=False, data_prop=False
    )
    inference(model)
    for one, (kind, shape) in zip(values, known, strict=False):
        is_inferred = one.type == kind and one.shape == shape
        one.type, one.shape = (None, None) if is_inferred else (kind, shape)
    # inside the body of a loop, onnx_ir 1.1 mistakes sequences for their elements
    for one, (kind, shape) in zip(inside, known[len(values) :], strict=True):
        one.type, one.shape = kind, shape
    for constant in model.graph.initializers.values():
        if id(constant) not in kept:
            constant.type = constant.shape = None  # the stored tensor has both


def _leave_out_attributes(node: "ir.Node", opset: int) -> None:
    import onnx

    schema = onnx.defs.get_schema(node.op_type, opset)
    for name, attribute in list(node.attributes.items()):
        declared = schema.attributes.get(name)
        if declared is None:
            continue
        value: Any = attribute.value
        if declared.default_value.type:
            default = onnx.helper.get_attribute_value(declared.default_value)
            is_default = value == (default.decode() if isinstance(default, bytes) else default)
        elif name == "kernel_shape":
            is_default = node.op_type in _CONVOLUTIONS  # the shape of the weight implies it
        else:
            is_default = name in _UNDECLARED and set(value) == {_UNDECLARED[name]}
        if is_default and (node.op_type, name) not in _MISREAD:
            del node.attributes[name]
