"""Multiply-accumulates of a traced graph, from shapes alone.

The count is that of the forward as traced, for the whole batch of the example inputs: one
multiply-accumulate for each product that is summed in a convolution, a linear layer, a matrix
product, `einsum`, scaled dot-product attention or a recurrent layer. Biases, activations,
normalisation and pooling count nothing. Padding counts as any
other input. A frequent convention elsewhere, FLOPs, is twice this number.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from nncfx.graph.einsum import einsum_macs
from nncfx.graph.nncf_graph import NNCFGraph
from nncfx.graph.operations import Operation, TensorInfo

__all__ = ["macs", "operation_macs", "total_macs"]


def macs(graph: NNCFGraph) -> dict[str, int]:
    """Return address to multiply-accumulates for the operations that have any, in order."""
    return {one.address: operation_macs(one) for one in graph.operations if one.function in _RULES}


def operation_macs(operation: Operation) -> int:
    """Return the multiply-accumulates of one operation; 0 for one that has none."""
    rule = _RULES.get(operation.function)
    return 0 if rule is None else rule(operation)


def total_macs(graph: NNCFGraph) -> int:
    """Return the multiply-accumulates of the whole forward as traced; 0 for a graph without."""
    return sum(macs(graph).values())


def _given(operation: Operation) -> list[TensorInfo]:
    return [one for one in operation.inputs if one is not None]


def _fan(weight: TensorInfo) -> int:
    """Return the elements of `weight` for one index of its first axis."""
    return TensorInfo(weight.shape[1:], weight.dtype).elements


def _convolution(operation: Operation) -> int:
    """Each output element sums `i/groups x *k` products: weight is `o x i/groups x *k`."""
    return operation.outputs[0].elements * _fan(_given(operation)[1])


def _transposed_convolution(operation: Operation) -> int:
    """Each input element is spread over `o/groups x *k`: weight is `i x o/groups x *k`."""
    given = _given(operation)
    return given[0].elements * _fan(given[1])


def _product(operation: Operation, left: int = 0) -> int:
    """Each output element sums the products along the last axis of the left factor."""
    return operation.outputs[0].elements * _given(operation)[left].shape[-1]


def _added_product(operation: Operation) -> int:
    """As `_product`, where port 0 is what the product is added to."""
    return _product(operation, left=1)


def _batch_reduced_product(operation: Operation) -> int:
    """As `_added_product`, summed over the batch axis too."""
    return _added_product(operation) * _given(operation)[1].shape[0]


def _attention(operation: Operation) -> int:
    """Scores are `queries x keys` products over e, the output the same over the value's e."""
    query, key, value = _given(operation)[:3]
    rows = query.elements // max(query.shape[-1], 1)
    return rows * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _recurrent(operation: Operation) -> int:
    """Every weight matrix multiplies once per time step and sequence."""
    given = _given(operation)
    is_packed = given[1].dtype == "int64"  # then port 1 holds the batch sizes
    states = 2 if operation.function.startswith("lstm") else 1
    weights = given[1 + is_packed + states :]
    steps = given[0].elements // max(given[0].shape[-1], 1)
    return steps * sum(one.elements for one in weights if len(one.shape) == 2)  # noqa: PLR2004 (a matrix)


def _einsum(operation: Operation) -> int:
    return einsum_macs(operation.equation, [one.shape for one in _given(operation)])


_RULES: Final[Mapping[str, Callable[[Operation], int]]] = MappingProxyType(
    {
        **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
        **dict.fromkeys(
            ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution
        ),
        **dict.fromkeys(
            ("linear", "matmul", "__matmul__", "mm", "bmm", "mv", "dot", "inner"), _product
        ),
        **dict.fromkeys(("addmm", "addmv", "baddbmm"), _added_product),
        "addbmm": _batch_reduced_product,
        "einsum": _einsum,
        "scaled_dot_product_attention": _attention,
        **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
        **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _recurrent),
    },
)
