"""Which inputs of an operation are quantized as activations, and which is its weight."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from nncfx.graph import Operation
from nncfx.graph.einsum import MatrixProduct, matrix_product
from nncfx.graph.operations import STRIDED
from nncfx.operators import CONTRACTIONS, operation_kind, operator_of

_FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
_ARITHMETIC: Final = frozenset({"add", "mul", "sub", "div"})
WITH_WEIGHT: Final = frozenset({*CONTRACTIONS, "embedding"})
"""Kinds of operations, besides recurrent layers, that can have a weight as an operand."""


@dataclass(frozen=True)
class Operands:
    """The operands of an operation.

    Attributes:
        activations: Ports of float tensors that enter the computation and are not parameters.
        weights: Parameters that are multiplied or looked up, by port; only recurrent layers have
            more than one.
        axis: The output channel axis of those parameters, counted from 0.
        computed: The port of a weight that is computed from parameters; None if there is none.
        problem: Why the operation cannot be quantized; "" if it can.
    """

    activations: tuple[int, ...]
    weights: Mapping[int, str] = field(default_factory=dict)
    axis: int | None = None
    computed: int | None = None
    problem: str = ""


def operands_of(
    operation: Operation,
    transposed: Mapping[int, str] | None = None,
    computed: AbstractSet[int] = frozenset(),
) -> Operands:
    """Return the operands of `operation`.

    Args:
        operation: The operation.
        transposed: Matrices that it reads transposed, by port (`transposed_weights`).
        computed: Ports whose value does not depend on the model's inputs (`constant_operands`).
    """
    kind = operation_kind(operation.function)
    turned = transposed or {}
    parameters = {**operation.parameters, **turned}
    floats = [
        port
        for port, one in enumerate(operation.inputs)
        if one is not None and one.dtype in _FLOATS and one.layout == STRIDED
    ]
    if kind not in WITH_WEIGHT:
        return _of_no_product(operation, kind, floats, parameters, computed)
    problem = _product_problem(operation)
    if problem:
        return Operands(tuple(port for port in floats if port not in parameters), problem=problem)
    factors = operator_of(operation.function).factors
    weights = [port for port in factors if port in parameters and len(_shape(operation, port)) > 1]
    activations = tuple(port for port in factors if port in floats and port not in parameters)
    if any(port in parameters for port in factors) and not weights:
        return Operands(activations, problem="it multiplies by a vector")
    if not weights:
        return _without_parameter(operation, kind, activations, computed)
    weight = weights[0]
    if len(weights) > 1 or (not activations and kind != "embedding"):
        return Operands(activations, problem="it multiplies parameters only")
    axis = _axis(operation, weight)
    if weight in turned and axis is not None:
        axis = 1 - axis
    problem = "its weight has no entries" if 0 in _shape(operation, weight) else ""
    return Operands(activations, {weight: parameters[weight]}, axis, problem=problem)


def _product_problem(operation: Operation) -> str:
    if any(one is not None and one.layout != STRIDED for one in operation.inputs):
        return "it multiplies by a sparse tensor"
    is_einsum = operation.function == "einsum"
    no_product = is_einsum and _matrix_product(operation) is None
    return "it is not a product of two matrices" if no_product else ""


def _of_no_product(
    operation: Operation,
    kind: str,
    floats: Sequence[int],
    parameters: Mapping[int, str],
    computed: AbstractSet[int],
) -> Operands:
    """Return the operands of an operation that is not a product of two of them."""
    if kind == "attention":
        # queries and keys; the factor of the values is computed inside the operation
        row = operator_of(operation.function)
        return Operands(
            tuple(port for port in floats if port in row.factors), problem=row.in_float
        )
    if kind == "recurrent":
        # each gate of each unit is a row of a matrix; biases are vectors
        matrices = {
            port: name for port, name in parameters.items() if len(_shape(operation, port)) > 1
        }
        return Operands((), matrices, axis=0)
    ports = tuple(port for port in floats if port not in parameters)
    # constants only: rounding them with one scale would harm the weight computed from them
    is_constant = computed >= set(ports)
    if kind in _ARITHMETIC and (is_constant or any(_is_row(operation, one) for one in computed)):
        ports = tuple(port for port in ports if port not in computed)
    return Operands(ports, problem=_elementwise_problem(kind, ports))


def _is_row(operation: Operation, port: int) -> bool:
    """Return whether the operand varies along one axis only: one scale would harm channels."""
    return sum(extent > 1 for extent in _shape(operation, port)) == 1


def _without_parameter(
    operation: Operation, kind: str, activations: tuple[int, ...], computed: AbstractSet[int]
) -> Operands:
    """Return the operands if none is a parameter; one can be computed from parameters."""
    port = activations[-1] if len(activations) > 1 else None
    axis = None if port is None or port not in computed else _axis(operation, port)
    if port is not None and axis is not None and computed.isdisjoint(activations[:-1]):
        return Operands(activations[:-1], axis=axis, computed=port)
    problem = ""
    if kind in ("conv", "conv_transpose") and port is not None:
        problem = "its weight is computed from an input of the model"
        if computed >= set(activations):
            problem = "it multiplies parameters only"
    return Operands(activations, problem=problem)


def _shape(operation: Operation, port: int) -> tuple[int, ...]:
    info = operation.inputs[port]
    return () if info is None else info.shape


def _axis(operation: Operation, port: int) -> int | None:
    """Return the output axis of the weight, or None if it is unknown."""
    row = operator_of(operation.function)
    role = row.role(port)
    if role == "factor":
        return _axis_of_einsum(operation, port)
    if role in ("left", "right"):
        # x @ w has the outputs last. A batch of matrices has no output axis, nor has w @ x:
        # no runtime supports several scales for the left operand
        is_matrix = len(_shape(operation, port)) == 2  # noqa: PLR2004 (rows and columns)
        return 1 if is_matrix and role == "right" else None
    return row.output_axis


def _axis_of_einsum(operation: Operation, port: int) -> int | None:
    """Return the longest output axis of a weight on the right; None for a batch of weights."""
    product = _matrix_product(operation)
    if product is None or product.batch or not product.right or not port:
        return None
    indices, shape = product.operands[port], _shape(operation, port)
    return max(map(indices.index, product.right), key=shape.__getitem__)


def _matrix_product(operation: Operation) -> MatrixProduct | None:
    ranks = [len(one.shape) for one in operation.inputs if one is not None]
    return matrix_product(operation.equation, ranks) if min(ranks, default=0) > 1 else None


def _elementwise_problem(kind: str, ports: tuple[int, ...]) -> str:
    if kind not in _ARITHMETIC:
        return ""
    return "" if len(ports) == 2 else "one of its operands is a constant"  # noqa: PLR2004 (both)
