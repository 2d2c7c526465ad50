"""Leave out of a graph what every reader of ONNX takes for granted."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import onnx_ir as ir

_UNDECLARED: Final[Mapping[str, int]] = MappingProxyType({"strides": 1, "dilations": 1, "pads": 0})
"""Defaults along each axis that the specification has in words, and no schema."""
_MISREAD: Final = frozenset({("STFT", "onesided")})
"""Defaults of which the inference of ONNX 1.23 makes something else."""
_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})


def leave_out_defaults(model: "ir.Model") -> None:
    """Remove attributes at their defaults, and types that can be inferred.

    What is computed does not change: the ONNX specification gives what is left out. Zero points of
    0 are kept: on a CPU without VNNI, ONNX Runtime 1.32 with `session.x64quantprecision` refuses
    files of convolutions in which they are left out.
    """
    opset = model.opset_imports.get("", 1)
    for node in model.graph.all_nodes():
        if not node.domain:
            _leave_out_attributes(node, opset)
    _leave_out_types(model)


def _leave_out_types(model: "ir.Model") -> None:
    """Drop the types and shapes that the inference of ONNX finds by itself.

    Others are kept: ONNX Runtime fuses a normalization and the sum before it by their shapes.
    """
    from onnx_ir.passes.common import shape_inference

    kept = {id(one) for one in model.graph.outputs}
    nodes = [one for one in model.graph if not one.domain]  # ONNX infers nothing of others
    values = [one for node in nodes for one in node.outputs if id(one) not in kept]
    inside = [
        one
        for graph in model.graph.subgraphs()
        for one in (*graph.inputs, *(one for node in graph for one in node.outputs))
    ]
    known = [(one.type, one.shape) for one in (*values, *inside)]
    for one in values:
        one.type = one.shape = None
    # not strict: an operation of which nothing can be inferred is no reason to keep all types
    inference = shape_inference.ShapeInferencePass(
        check_type=False, strict_mode=False, data_prop=False
    )
    inference(model)
    for one, (kind, shape) in zip(values, known, strict=False):
        is_inferred = one.type == kind and one.shape == shape
        one.type, one.shape = (None, None) if is_inferred else (kind, shape)
    # of a loop's body onnx_ir 1.1 takes sequences for their elements
    for one, (kind, shape) in zip(inside, known[len(values) :], strict=True):
        one.type, one.shape = kind, shape
    for constant in model.graph.initializers.values():
        if id(constant) not in kept:
            constant.type = constant.shape = None  # both stand in what is stored


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
            is_default = node.op_type in _CONVOLUTIONS  # the weight has it
        else:
            is_default = name in _UNDECLARED and set(value) == {_UNDECLARED[name]}
        if is_default and (node.op_type, name) not in _MISREAD:
            del node.attributes[name]
