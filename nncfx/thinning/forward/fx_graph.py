"""A module's forward as an `fx.Graph` in which the integers of its code can change."""

import copy
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

from nncfx.errors import ThinningError, error_text, machine_fault
from nncfx.thinning.forward.arguments import Arguments
from nncfx.thinning.forward.fx_tracer import traced_forward

# ruff: noqa: ANN401 (arguments of functions can be anything)

_CALLS: Final = frozenset({"call_function", "call_method", "call_module"})
_MODES: Final = "in training it does other things than in evaluation"


@dataclass(frozen=True, eq=False)
class ForwardGraph:
    """The graph of a module's own forward; calls of submodules are single nodes.

    Attributes:
        graph: reads every integer of `literals` from the attribute of that name.
        literals: attribute to the integer in the code, above 1.
        constants: attribute to a tensor that the code gets from elsewhere.
    """

    graph: fx.Graph
    literals: Mapping[str, int]
    constants: Mapping[str, torch.Tensor]

    def settled(self, values: Mapping[str, int]) -> fx.Graph:
        """Return the graph with its integers inserted, those in `values` changed."""
        graph = fx.Graph()
        numbers = {**self.literals, **values}
        copies: dict[fx.Node, Any] = {}

        def put(node: fx.Node) -> Any:
            return copies[node]

        for node in self.graph.nodes:
            if node.op == "get_attr" and node.target in numbers:
                copies[node] = numbers[str(node.target)]
            else:
                args, kwargs = fx.map_arg(node.args, put), fx.map_arg(node.kwargs, put)
                copies[node] = graph.create_node(
                    node.op, node.target, args, kwargs, node.name, node.type
                )
        return graph


def forward_graph(module: nn.Module, arguments: Arguments) -> ForwardGraph:
    """Return the forward of `module` as a graph for both training and evaluation.

    Branches on sizes are resolved for `arguments`; the graph rejects inputs for which the module
    would branch differently.

    Args:
        module: not changed.
        arguments: of a call of its forward.

    Raises:
        ThinningError: the forward cannot be traced; the message says why.
    """
    constants: Mapping[str, torch.Tensor] = {}
    try:
        if isinstance(module, fx.GraphModule):
            graph = _own_graph(module)
        else:
            graph, constants = traced_forward(module, arguments, train=False)
            training, _ = traced_forward(module, arguments, train=True)
            _join(graph, training)
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        raise ThinningError(
            f"The forward of {type(module).__name__} cannot be written as a graph: "
            f"{error_text(error)}. Let its code take widths from tensors, or from "
            "integers that the module keeps."
        ) from error
    return ForwardGraph(graph, _lift(graph), constants)


def _own_graph(module: fx.GraphModule) -> fx.Graph:
    graph = copy.deepcopy(module.graph)
    if type(graph._codegen) is not fx.graph.CodeGen:  # noqa: SLF001 (fx has no public way)
        raise ValueError("its arguments are taken apart, as those of an exported program")
    return graph


def _join(graph: fx.Graph, training: fx.Graph) -> None:
    """Make a graph for evaluation also valid for training, using the module's `training` flag.

    Raises:
        ValueError: the graphs differ in more than non-tensor arguments.
    """
    if [_kind(one) for one in graph.nodes] != [_kind(one) for one in training.nodes]:
        raise ValueError(_MODES)
    same = dict(zip(training.nodes, graph.nodes, strict=True))
    for other, node in same.items():
        mine = (node.args, node.kwargs)
        theirs = fx.map_arg((other.args, other.kwargs), same.__getitem__)
        if mine != theirs:
            pairs = zip(_leaves(mine), _leaves(theirs), strict=True)
            with graph.inserting_before(node):
                node.args, node.kwargs = _refilled(mine, [_by_mode(graph, *one) for one in pairs])


def _kind(node: fx.Node) -> tuple[str, Any, int]:
    return node.op, node.target, len(_leaves((node.args, node.kwargs)))


def _by_mode(graph: fx.Graph, evaluation: Any, training: Any) -> Any:
    """Return an expression with one value in evaluation and another in training."""
    if evaluation is training or (type(evaluation), evaluation) == (type(training), training):
        return evaluation
    if fx.Node in (type(evaluation), type(training)):
        raise ValueError(_MODES)
    flag = graph.create_node("get_attr", "training")
    if (evaluation, training) == (False, True):
        return flag
    return graph.call_function(operator.getitem, ((evaluation, training), flag))


def _refilled(value: Any, leaves: Iterable[Any]) -> Any:
    """Return nested arguments with their leaves replaced, in order."""
    left = iter(leaves)

    def put(_: Any) -> Any:
        return next(left)

    return map_aggregate(value, put)


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    map_aggregate(value, found.append)
    return found


def _lift(graph: fx.Graph) -> dict[str, int]:
    """Make the graph read integers above 1 from attributes; return them by name."""
    literals: dict[str, int] = {}
    for node in [one for one in graph.nodes if one.op in _CALLS]:
        prefix = f"literal_{node.name}"
        with graph.inserting_before(node):

            def lifted(leaf: Any, prefix: str = prefix) -> Any:
                if type(leaf) is not int or leaf <= 1:
                    return leaf
                name = f"{prefix}_{sum(one.startswith(prefix + '_') for one in literals)}"
                literals[name] = leaf
                return graph.create_node("get_attr", name)

            node.args, node.kwargs = map_aggregate((node.args, node.kwargs), lifted)
    return literals
