"""Hago's graph of a traced model: variables, constants and calls, and the edges between them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.graph import NNCFGraph, Operation
from nncfx.graph.operations import INPUT_FUNCTION, OUTPUT_FUNCTION
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.operators import operation_kind, operator_of
from nncfx.quantization.preparation.batch_norm_folding import fold_batch_norms
from nncfx.storage.models.model_state import model_state
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.module_check import require_module

_BIAS_PORT: Final = 2


class NodeKind(Enum):
    """The kind of a node."""

    VAR = "var"
    CONSTANT = "constant"
    CALL = "call"


@dataclass(frozen=True)
class Node:
    """A producer of one tensor: an input of the model, a parameter, or an operation.

    Attributes:
        kind: One of the three.
        name: The input's address, the parameter's dotted name, or the operation's address.
        operation: The operation of a call; None for the other two.
    """

    kind: NodeKind
    name: str
    operation: Operation | None = None

    @property
    def is_call(self) -> bool:
        """Whether the node is an operation."""
        return self.kind is NodeKind.CALL

    @property
    def work(self) -> str:
        """The kind of operation, as named in hardware descriptions; "" if it is not a call."""
        return "" if self.operation is None else operation_kind(self.operation.function)


@dataclass(frozen=True)
class QuantEdge:
    """A tensor that a call reads.

    Attributes:
        source: Number of the node that produces it.
        source_port: The output of that node.
        target: Number of the call that reads it.
        port: The input port of that call.
    """

    source: int
    source_port: int
    target: int
    port: int


@dataclass(frozen=True)
class QuantGraph:
    """The graph to quantize: nodes in post-order, edges in argument order, and the model itself.

    The bias of a convolution or linear layer is not an edge: it has the scale and the width of the
    sums that it is added to.

    Attributes:
        nodes: Every node follows the nodes that it reads.
        edges: By target, then by port.
        biases: Number of a call to the dotted name of its bias.
        model: Wrapped, in evaluation mode, with batch norms folded. Readers of the graph never
            change it.
    """

    nodes: tuple[Node, ...]
    edges: tuple[QuantEdge, ...]
    biases: dict[int, str]
    model: NNCFNetwork

    @property
    def example_inputs(self) -> ExampleInputs:
        """The inputs that the model was traced with."""
        return self.model.nncf.example_inputs

    @cached_property
    def model_hash(self) -> int:
        """A 63-bit hash of the operations and of every parameter and buffer."""
        digest = hashlib.sha256()
        for node in self.nodes:
            digest.update(f"{node.kind.value} {node.name}\n".encode())
        for edge in self.edges:
            digest.update(f"{edge.source} {edge.source_port} {edge.target} {edge.port}\n".encode())
        for name, tensor in model_state(self.model).items():
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
            digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
        return int.from_bytes(digest.digest()[:8], "big") >> 1

    @cached_property
    def incoming(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the edges into each node, by port; empty if it is not a call."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for number, edge in enumerate(self.edges):
            found[edge.target].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def returned(self) -> frozenset[tuple[str, int]]:
        """Name and output port of the nodes that the model returns."""
        return frozenset(
            (edge.source, edge.source_port)
            for edge in self.model.nncf.graph.edges
            if edge.target.startswith(f"/{OUTPUT_FUNCTION}")
        )

    def calls(self) -> Iterator[tuple[int, Node, Operation]]:
        """Yield the number, the node and the operation of every call, in post-order."""
        for number, node in enumerate(self.nodes):
            if node.operation is not None:
                yield number, node, node.operation

    def describe(self, edge: QuantEdge) -> str:
        """Return the edge in words: from where, to which port."""
        target = self.nodes[edge.target].name
        return f"{self.nodes[edge.source].name} -> {target}|INPUT{edge.port}"


def prepare_graph(model: nn.Module, example_inputs: ExampleInputs) -> QuantGraph:
    """Return the graph of a copy of `model` on the CPU, batch norms folded, in evaluation mode.

    Args:
        model: Plain, or wrapped without hooks; not changed.
        example_inputs: A tensor, a tuple of positional inputs, or a mapping of keyword inputs; on
            the CPU.

    Raises:
        ArgumentError: `model` is not a module, or has hooks.
        TracingError: the model rejects the inputs.
    """
    require_module(model, "prepare_graph")
    require_whole(model, "copied", is_only_run=True)
    copied = copy_of(model)
    if isinstance(copied, NNCFNetwork):
        if hooks := copied.nncf.hooks:
            raise ArgumentError(
                f"The model carries {len(hooks)} hooks, the first of '{hooks[0].algorithm}'. Pass "
                "nncfx.strip(model), in which what they do to the weights is baked in."
            )
        copied = unwrap(copied)
    copied = copied.cpu().eval()
    fold_batch_norms(copied, example_inputs)
    return graph_of(wrap(copied, example_inputs))


def graph_of(model: NNCFNetwork) -> QuantGraph:
    """Return the graph of a wrapped model in evaluation mode, without changing the model."""
    traced = model.nncf.graph
    order = _post_order(traced)
    numbers = {node.name: number for number, node in enumerate(order)}
    edges, biases = [], {}
    for node in order:
        if node.operation is None:
            continue
        target = numbers[node.name]
        bias = _bias(node)
        if bias is not None:
            biases[target] = bias
        edges += [
            QuantEdge(numbers[name], source_port, target, port)
            for port, name, source_port in _sources(traced, node.operation)
            if port != _BIAS_PORT or bias is None
        ]
    return QuantGraph(tuple(order), tuple(edges), biases, model)


def _bias(node: Node) -> str | None:
    if node.operation is None or operator_of(node.operation.function).role(_BIAS_PORT) != "bias":
        return None
    return node.operation.parameters.get(_BIAS_PORT)


def _sources(traced: NNCFGraph, operation: Operation) -> list[tuple[int, str, int]]:
    """Return port, name and output port of everything that `operation` reads, by port."""
    found = [
        (edge.target_port, edge.source, edge.source_port)
        for edge in traced.incoming(operation.address)
    ]
    found += [(port, name, 0) for port, name in operation.parameters.items()]
    return sorted(found)


def _post_order(traced: NNCFGraph) -> list[Node]:
    """Return the nodes that the outputs need, each after its sources in argument order."""
    ends = [edge.source for edge in traced.edges if traced.get(edge.target) is None]
    order: dict[str, Node] = {}
    stack = [(name, False) for name in reversed(ends)]
    while stack:
        name, is_ready = stack.pop()
        if name in order:
            continue
        operation = traced.get(name)
        if operation is None:
            kind = NodeKind.VAR if name.startswith(f"/{INPUT_FUNCTION}") else NodeKind.CONSTANT
            order[name] = Node(kind, name)
        elif is_ready:
            order[name] = Node(NodeKind.CALL, name, operation)
        else:
            stack.append((name, True))
            bias = _bias(Node(NodeKind.CALL, name, operation))
            sources = [one for _, one, _ in _sources(traced, operation) if one != bias]
            stack += [(one, False) for one in reversed(sources) if one not in order]
    return list(order.values())
