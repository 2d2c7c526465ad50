"""Count the multiply-accumulates of a traced graph from shapes.

The count covers the forward as traced, for the whole batch of the example inputs: one
multiply-accumulate for each product that is summed in a convolution, a linear layer, a matrix
product, `einsum`, scaled dot-product attention or a recurrent layer. Biases, activations,
normalization and pooling count nothing. Padding counts like any other input. FLOPs, as often
counted elsewhere, are twice this number.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from nncfx.graph.einsum import einsum_macs
from nncfx.graph.nncf_graph import NNCFGraph
from nncfx.graph.operations import Operation, TensorInfo
from nncfx.operators import ROWS, Rules, operator_of

MacRule: TypeAlias = Callable[[Operation], int]

mac_rule: Final = Rules[MacRule](
    lambda one: one.macs, {one.macs for one in ROWS}, "a rule of the table's MACs"
)
"""Decorator that registers a MAC rule for a word in the operator table's `macs`, or for one
function."""


def macs(graph: NNCFGraph) -> dict[str, int]:
    """Return multiply-accumulates by address, for operations that have any, in order."""
    return {
        one.address: rule(one)
        for one in graph.operations
        if (rule := mac_rule.find(one.function)) is not None
    }


def operation_macs(operation: Operation) -> int:
    """Return the multiply-accumulates of one operation; 0 if it has none."""
    rule = mac_rule.find(operation.function)
    return 0 if rule is None else rule(operation)


def total_macs(graph: NNCFGraph) -> int:
    """Return the multiply-accumulates of the whole forward as traced; 0 if it has none."""
    return sum(macs(graph).values())


def _given(operation: Operation) -> list[TensorInfo]:
    return [one for one in operation.inputs if one is not None]


def _at(operation: Operation, *roles: str) -> TensorInfo:
    """Return the first input of `operation` with one of these roles, which must be given."""
    found = operation.inputs[operator_of(operation.function).port(*roles)]
    assert found is not None  # noqa: S101 (a product is of two)
    return found


def _fan(weight: TensorInfo) -> int:
    """Return the number of elements of `weight` per index of its first axis."""
    return TensorInfo(weight.shape[1:], weight.dtype).elements


@mac_rule("fan_in")
def _per_output(operation: Operation) -> int:
    """Each output element sums `i/groups x *k` products: weight is `o x i/groups x *k`."""
    return operation.outputs[0].elements * _fan(_at(operation, "weight"))


@mac_rule("fan_out")
def _per_input(operation: Operation) -> int:
    """Each input element is spread over `o/groups x *k`: weight is `i x o/groups x *k`."""
    return _at(operation, "activation").elements * _fan(_at(operation, "weight"))


@mac_rule("product")
def _product(operation: Operation) -> int:
    """Each output element sums the products along the last axis of the left factor."""
    return operation.outputs[0].elements * _at(operation, "left", "activation").shape[-1]


@mac_rule("batch_reduced_product")
def _batch_reduced_product(operation: Operation) -> int:
    """As `_product`, summed over the batch axis too."""
    return _product(operation) * _at(operation, "left").shape[0]


@mac_rule("attention")
def _attention(operation: Operation) -> int:
    """Scores are `queries x keys` products over e, the output the same over the value's e."""
    query, key, value = _given(operation)[:3]
    rows = query.elements // max(query.shape[-1], 1)
    return rows * key.shape[-2] * (query.shape[-1] + value.shape[-1])


@mac_rule("recurrent")
def _recurrent(operation: Operation) -> int:
    """Every weight matrix multiplies once per time step and sequence."""
    given = _given(operation)
    is_packed = given[1].dtype == "int64"  # then port 1 holds the batch sizes
    states = 2 if operation.function.startswith("lstm") else 1
    weights = given[1 + is_packed + states :]
    steps = given[0].elements // max(given[0].shape[-1], 1)
    return steps * sum(one.elements for one in weights if len(one.shape) == 2)  # noqa: PLR2004 (a matrix)


@mac_rule("einsum")
def _einsum(operation: Operation) -> int:
    return einsum_macs(operation.equation, [one.shape for one in _given(operation)])
