"""Finds tensors that are not read again, so a simulation can round them in place."""

from collections.abc import Mapping
from typing import Final

from nncfx.graph import Operation
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.operators import operation_kind

_ALLOCATING: Final = frozenset(
    {
        *("add", "avg_pool", "concat", "conv", "conv_transpose", "linear", "matmul"),
        *("max_pool", "mul", "sigmoid", "sub", "tanh"),
    }
)
"""Kinds whose result, unless changed in place, is in newly allocated memory."""

_PERHAPS_IN_PLACE: Final = ("clip", "relu")
"""Kinds that change their input in place if an argument says so; the graph does not keep it."""

_MAY_BE_VIEW: Final = ("einsum",)


def changes_in_place(function: str) -> bool:
    """Return whether the function, as named in addresses, changes its first argument.

    >>> changes_in_place("relu_"), changes_in_place("__iadd__"), changes_in_place("__add__")
    (True, True, False)
    """
    return function[:3] == "__i" or (function[-1] == "_" and function[-2:] != "__")


def overwritable_edges(graph: QuantGraph) -> frozenset[int]:
    """Return the edges whose tensor can be changed in place when it arrives at the target.

    This requires that an operation allocated its memory, that the model does not return it, and
    that the target is its last reader, after readers that keep no reference to it.
    """
    turns = {name: turn for turn, name in enumerate(graph.model.nncf.graph.addresses)}
    readers: dict[tuple[int, int], list[int]] = {}
    for number, edge in enumerate(graph.edges):
        readers.setdefault((edge.source, edge.source_port), []).append(number)
    found = set()
    for (source, port), edges in readers.items():
        ordered = sorted(edges, key=lambda one: turns[graph.nodes[graph.edges[one].target].name])
        *before, last = (graph.edges[one].target for one in ordered)
        if (
            (graph.nodes[source].name, port) not in graph.returned
            and last not in before
            and all(_allocates(graph.nodes[one].operation) for one in before)
            and _owns_result(graph, source, readers)
        ):
            found.add(ordered[-1])
    return frozenset(found)


def _owns_result(
    graph: QuantGraph, number: int, readers: Mapping[tuple[int, int], list[int]]
) -> bool:
    """Return whether the memory of the node's result is not read elsewhere."""
    operation = graph.nodes[number].operation
    if operation is None:
        return False
    if _allocates(operation):
        return True
    kind = operation_kind(operation.function)
    if kind not in _PERHAPS_IN_PLACE and not changes_in_place(operation.function):
        return False
    changed = [graph.edges[one] for one in graph.incoming[number] if graph.edges[one].port == 0]
    # the changed tensor may not be a node: a tensor that a module keeps as a plain attribute
    return bool(changed) and all(
        len(readers[one.source, one.source_port]) == 1 and _owns_result(graph, one.source, readers)
        for one in changed
    )


def _allocates(operation: Operation | None) -> bool:
    return (
        operation is not None
        and operation_kind(operation.function) in _ALLOCATING
        and operation.function not in _MAY_BE_VIEW
        and not changes_in_place(operation.function)
    )
