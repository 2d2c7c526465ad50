"""`NNCFGraph`, the operations of a traced model and the tensors between them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import networkx as nx
from typing_extensions import override

from nncfx.errors import GraphError, did_you_mean
from nncfx.graph import selection
from nncfx.graph.drawing import dot, svg
from nncfx.graph.operations import INPUT_FUNCTION, OUTPUT_FUNCTION, Edge, Operation, TensorInfo
from nncfx.graph.serialization import decode, encode


def input_address(index: int) -> str:
    """Return the address of the model's input number `index`.

    >>> input_address(0)
    '/nncf_model_input_0'
    """
    return f"/{INPUT_FUNCTION}_{index}"


def output_address(index: int) -> str:
    """Return the address of the model's output number `index`."""
    return f"/{OUTPUT_FUNCTION}_{index}"


@dataclass(frozen=True)
class NNCFGraph:
    """The operations of one forward of a model; immutable, and equal if all parts are equal.

    Attributes:
        operations: In execution order.
        edges: Ordered by consumer, then by the consumer's port.
        inputs: The model's input tensors, in order; nodes `/nncf_model_input_<i>`.
        outputs: The model's output tensors, in order; nodes `/nncf_model_output_<i>`.
    """

    operations: tuple[Operation, ...]
    edges: tuple[Edge, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    @override
    def __reduce__(self) -> Any:
        # leave out the cached tables
        return (NNCFGraph, (self.operations, self.edges, self.inputs, self.outputs))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # immutable, so a copy of a wrapped model shares it
        return self

    @property
    def addresses(self) -> list[str]:
        """The addresses of the operations (not of inputs and outputs), in execution order."""
        return [one.address for one in self.operations]

    @cached_property
    def _by_address(self) -> dict[str, Operation]:
        return {one.address: one for one in self.operations}

    @cached_property
    def _incoming(self) -> dict[str, tuple[Edge, ...]]:
        return _grouped((edge.target, edge) for edge in self.edges)

    @cached_property
    def _outgoing(self) -> dict[str, tuple[Edge, ...]]:
        return _grouped((edge.source, edge) for edge in self.edges)

    def get(self, address: str) -> Operation | None:
        """Return the operation at `address`; None for inputs and outputs of the model."""
        return self._by_address.get(address)

    def find(self, address: str) -> Operation:
        """Return the operation at `address`.

        Raises:
            GraphError: there is no such operation; the message names the nearest address.
        """
        found = self._by_address.get(address)
        if found is None:
            raise GraphError(
                f"No operation at '{address}'.{did_you_mean(address, self._by_address)}"
                " 'graph.addresses' lists them all."
            )
        return found

    def incoming(self, address: str) -> Sequence[Edge]:
        """Return the edges into `address`, by port; empty if there are none."""
        return self._incoming.get(address, ())

    def outgoing(self, address: str) -> Sequence[Edge]:
        """Return the edges out of `address`, in order of consumption."""
        return self._outgoing.get(address, ())

    def select(self, patterns: Iterable[str]) -> list[Operation]:
        """Return the operations that `patterns` select, in execution order.

        A pattern is an exact address, an exact scope, or `{function}` followed by the exact name
        of a function. A pattern that contains `{re}` is a regular expression that is searched for
        in the address.

        Raises:
            GraphError: a regular expression does not compile.
        """
        return selection.select(self.operations, patterns)

    def unmatched(self, patterns: Iterable[str]) -> list[str]:
        """Return the `patterns` that select no operation.

        Raises:
            GraphError: a regular expression does not compile.
        """
        return selection.unmatched(self.operations, patterns)

    def hint(self, pattern: str) -> str:
        """Return " Did you mean 'x'?" with a suggestion for an unmatched pattern, or ""."""
        return selection.hint(self.operations, pattern)

    def to_json(self) -> str:
        """Return the graph as JSON text; equal graphs give equal text."""
        return encode((self.operations, self.edges, self.inputs, self.outputs))

    @classmethod
    def from_json(cls, text: str) -> "NNCFGraph":
        """Return the graph that `to_json` wrote.

        Raises:
            GraphError: `text` is not JSON, not a graph, or of another version.
        """
        return cls(*decode(text))

    def to_dot(self) -> str:
        """Return the graph in the DOT language, to draw with Graphviz (`dot -Tsvg`)."""
        inputs = [(input_address(i), one) for i, one in enumerate(self.inputs)]
        outputs = [(output_address(i), one) for i, one in enumerate(self.outputs)]
        return dot(self.operations, self.edges, [*inputs, *outputs])

    def to_svg(self) -> str:
        """Return the graph as an SVG picture, drawn by Graphviz.

        Raises:
            GraphError: the program `dot` of Graphviz is not installed.
        """
        return svg(self.to_dot())

    def to_networkx(self) -> "nx.MultiDiGraph[str]":
        """Return the graph as a networkx multigraph, with nodes keyed by address.

        A node carries `function`, and an operation's node also `operation`. An edge carries
        `source_port`, `target_port`, `shape` and `dtype`, and its key is the target port.
        """
        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
        for index in range(len(self.inputs)):
            graph.add_node(input_address(index), function=INPUT_FUNCTION)
        for one in self.operations:
            graph.add_node(one.address, function=one.function, operation=one)
        for index in range(len(self.outputs)):
            graph.add_node(output_address(index), function=OUTPUT_FUNCTION)
        for edge in self.edges:
            graph.add_edge(
                edge.source,
                edge.target,
                key=edge.target_port,
                source_port=edge.source_port,
                target_port=edge.target_port,
                shape=edge.tensor.shape,
                dtype=edge.tensor.dtype,
            )
        return graph


def _grouped(pairs: Iterable[tuple[str, Edge]]) -> dict[str, tuple[Edge, ...]]:
    grouped: dict[str, list[Edge]] = {}
    for address, edge in pairs:
        grouped.setdefault(address, []).append(edge)
    return {address: tuple(edges) for address, edges in grouped.items()}
