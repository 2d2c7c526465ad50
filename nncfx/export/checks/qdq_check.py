"""Check that every convolution and matrix product of a file can run in integers."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nncfx.errors import ExportError, needing
from nncfx.export.ir.graph_edits import constant_of, consumers, input_of, nodes_of
from nncfx.export.ir.layer_inputs import CONTRACTIONS, is_dequantized, stored_integers
from nncfx.targets import Target, target_named

if TYPE_CHECKING:
    import onnx_ir as ir

_LOGGER = logging.getLogger(__name__)
_WITHOUT_KERNEL: Final = frozenset({"ConvTranspose"})
_CLAMPS: Final = frozenset({"Clip", "Relu"})
_ZERO_POINT: Final = 2
_SHOWN: Final = 5
_LEAST: Final = {"INT8": -128, "UINT8": 0}


@dataclass(frozen=True)
class QDQViolation:
    """A convolution or matrix product that a runtime will compute in float.

    Attributes:
        node: its name in the file.
        operator: its ONNX operator.
        reason: why no integer kernel fits.
    """

    node: str
    operator: str
    reason: str


def qdq_violations(
    path: str | os.PathLike[str], target: str | Target = "onnxruntime"
) -> tuple[QDQViolation, ...]:
    """Return the convolutions and matrix products of a file that `target` computes in float.

    To run in integers, both operands must come from a `DequantizeLinear` of 8 bits (with zero
    point 0, for a symmetric target), and a convolution's result must be quantized again. Custom
    operators of a runtime, such as `MatMulNBits`, are not checked.

    Raises:
        ArgumentError: the target is unknown.
        ExportError: the file is not an ONNX model.
        MissingExtraError: onnx is not installed.
    """
    wanted = target_named(target, "opset")
    graph = _read(path)
    return tuple(
        QDQViolation(str(node.name), node.op_type, reason)
        for node in graph.all_nodes()
        if node.op_type in CONTRACTIONS and not node.domain
        for reason in _reasons(node, wanted)
    )


def warn_float_operations(graph: "ir.Graph", target: Target) -> None:
    """Warn of layers with stored integers that `target` computes in float anyway.

    A graph without quantized activations, where only weights are quantized, is not checked, nor is
    a graph for a target whose convolutions can return floats. Tensors in float8 trigger a warning
    for every target, because the file holds the operations that simulate them.
    """
    _warn_float8(nodes_of(graph, "Cast"), target)
    if target.float_results or not nodes_of(graph, "QuantizeLinear"):
        return
    left = {
        str(node.name): reason
        for node in nodes_of(graph, *CONTRACTIONS)
        if stored_integers(input_of(node, 1)) is not None
        for reason in _reasons(node, target)
    }
    if left:
        shown = "; ".join(f"{name}: {reason}" for name, reason in list(left.items())[:_SHOWN])
        _LOGGER.warning(
            "%s computes %d layers of the file in float, though their weights are integers "
            "(%s%s). qdq_violations lists them all.",
            target.name,
            len(left),
            shown,
            "; ..." if len(left) > _SHOWN else "",
        )


def _warn_float8(casts: "Sequence[ir.Node]", target: Target) -> None:
    import onnx_ir as ir

    kinds = {ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2}
    rounded = [one for one in casts if one.outputs[0].dtype in kinds]
    if rounded:
        _LOGGER.warning(
            "%d tensors are rounded to float8 by the operations that simulate it; %s computes in "
            "float32 what reads them. Only integers are written as QuantizeLinear: quantize for "
            "a target that has them, such as 'onnxruntime' or 'tensorrt'.",
            len(rounded),
            target.name,
        )


def _read(path: str | os.PathLike[str]) -> "ir.Graph":
    with needing("onnx_ir", "export", "reading an ONNX file"):
        import onnx_ir as ir
    try:
        return ir.load(os.fspath(path)).graph
    except Exception as error:
        raise ExportError(
            f"'{os.fspath(path)}' cannot be read as an ONNX model: {error}"
        ) from error


def _reasons(node: "ir.Node", target: Target) -> Iterator[str]:
    for index, operand in enumerate(("first operand", "second operand")):
        problem = _problem(input_of(node, index), target)
        if problem:
            yield f"its {operand} {problem}"
            return
    if target.symmetric:
        return
    if node.op_type in _WITHOUT_KERNEL:
        yield f"{target.name} has no integer kernel for {node.op_type}"
    elif node.op_type == "Conv" and not _is_quantized_behind(node.outputs[0]):
        yield "its result is used in float; quantize the output"


def _problem(value: "ir.Value", target: Target) -> str:
    source = value.producer()
    if source is None or not is_dequantized(value):
        return "is not quantized"
    stored, zero_point = source.inputs[0], _zero_point(source)
    dtype = _integer_type(stored if zero_point is None else zero_point)
    if dtype not in _LEAST:
        return f"is quantized to {dtype}, not to 8 bits"
    values = constant_of(zero_point)
    shifted = values is not None and bool(values.any())
    if target.symmetric and (dtype != "INT8" or shifted):
        return f"is {dtype} with a zero point, and {target.name} wants int8 without one"
    return ""


def _is_quantized_behind(value: "ir.Value") -> bool:
    readers = consumers(value)
    clamped = len(readers) == 1 and readers[0].op_type in _CLAMPS
    if clamped:
        value = readers[0].outputs[0]
        readers = consumers(value)
    if not readers or value.is_graph_output():
        return False
    return all(
        one.op_type == "QuantizeLinear" and (not clamped or _starts_at_zero(one))
        for one in readers
    )


def _starts_at_zero(quantize: "ir.Node") -> bool:
    """Return whether the grid has no values below 0, so a runtime can drop a ReLU."""
    zero_point = _zero_point(quantize)
    if zero_point is None:
        return True  # a QuantizeLinear without a zero point returns uint8
    value, dtype = constant_of(zero_point), zero_point.dtype
    return (
        value is not None and dtype is not None and bool((value == _LEAST.get(dtype.name)).all())
    )


def _zero_point(node: "ir.Node") -> "ir.Value | None":
    return node.inputs[_ZERO_POINT] if len(node.inputs) > _ZERO_POINT else None


def _integer_type(value: "ir.Value | None") -> str:
    """Return the type of a zero point or of integers, which a file only states for constants."""
    import onnx_ir as ir

    if value is None or value.dtype is not None:
        return "an unknown type" if value is None or value.dtype is None else value.dtype.name
    source = value.producer()
    if source is None:
        return "an unknown type"
    if source.op_type == "Cast":
        return ir.DataType(source.attributes["to"].as_int()).name
    if source.op_type == "QuantizeLinear":
        zero_point = _zero_point(source)
        return "UINT8" if zero_point is None else _integer_type(zero_point)
    return _integer_type(source.inputs[0] if source.inputs else None)  # a node that moves integers
