"""`torch.fx` graphs as picklable data: `as_data` and `from_data`."""

import pydoc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import fx
from torch.fx.node import _get_qualified_name, map_aggregate

# ruff: noqa: ANN401 (nodes have any arguments)

NodeData: TypeAlias = tuple[str, str, Any, Any, Any]
"""Name, operation, target, positional and named arguments of a node."""


@dataclass(frozen=True)
class _Result:
    """The result of the node with this name."""

    name: str


@dataclass(frozen=True)
class _Function:
    """The function with this name, and its module; some torch functions cannot be pickled."""

    name: str


def as_data(graph: fx.Graph) -> list[NodeData]:
    """Return the nodes of a graph in order; `from_data` is the inverse."""
    return [
        (
            *(node.name, node.op, _reference(node.target)),
            *(map_aggregate(node.args, _named), map_aggregate(node.kwargs, _named)),
        )
        for node in graph.nodes
    ]


def from_data(nodes: Sequence[NodeData]) -> fx.Graph:
    """Return the graph from the result of `as_data`."""
    graph = fx.Graph()
    made: dict[str, fx.Node] = {}

    def found(leaf: Any) -> Any:
        return made[leaf.name] if isinstance(leaf, _Result) else leaf

    for name, kind, reference, args, kwargs in nodes:
        is_named = isinstance(reference, _Function)
        target: Any = pydoc.locate(reference.name) if is_named else reference
        made[name] = graph.create_node(
            kind, target, map_aggregate(args, found), map_aggregate(kwargs, found), name
        )
    return graph


def _named(leaf: Any) -> Any:
    return _Result(leaf.name) if isinstance(leaf, fx.Node) else leaf


def _reference(target: Any) -> Any:
    if isinstance(target, str):
        return target
    name = _get_qualified_name(target)
    return _Function(name) if pydoc.locate(name) is target else target
