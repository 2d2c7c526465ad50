"""Requests for quantized tensors, moved up to the producer of each tensor."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import networkx as nx

from nncfx.graph import Edge, NNCFGraph, Operation
from nncfx.graph.operations import INPUT_FUNCTION, OUTPUT_FUNCTION
from nncfx.operators import MOVEMENTS, operation_kind
from nncfx.quantization.grid.plan import Tensor
from nncfx.targets import Hardware
from nncfx.tracing import PostSite, PreSite, Site

_MASKING: Final = 1e4
"""Fill values from here on represent minus infinity; a grid that covers them is too coarse."""


def is_model_input(address: str) -> bool:
    """Return whether `address` is that of an input of the model."""
    return address.startswith(f"/{INPUT_FUNCTION}_")


def fused_chain(graph: NNCFGraph, operation: Operation, hardware: Hardware) -> list[Operation]:
    """Return the operations that are fused into one kernel with `operation`, which comes first."""
    chain = [operation]
    while True:
        following = {edge.target for edge in graph.outgoing(chain[-1].address)}
        if len(following) != 1:
            return chain
        (target,) = following
        if target.startswith(f"/{OUTPUT_FUNCTION}_"):
            return chain
        longer = [*chain, graph.find(target)]
        if not hardware.is_fused([operation_kind(one.function) for one in longer]):
            return chain
        chain = longer


@dataclass
class Requests:
    """Requests for quantized tensors.

    Attributes:
        graph: Graph of the model.
        askers: For each tensor, address and port of the operations that request it.
        produced: Tensors that their producer requires to be quantized for all readers.
    """

    graph: NNCFGraph
    askers: dict[Tensor, list[tuple[str, int]]] = field(default_factory=dict)
    produced: set[Tensor] = field(default_factory=set)
    _covered: set[tuple[str, int]] = field(default_factory=set)
    _unseen: dict[Tensor, PreSite] = field(default_factory=dict)
    _together: "nx.Graph[Tensor]" = field(default_factory=nx.Graph)

    def ask(self, address: str, port: int, *, unified: Iterable[str]) -> list[Tensor]:
        """Request the input of `address` at `port`; return the tensors to quantize for it.

        An input that is a concatenation, if `unified` holds its kind, is several tensors.
        """
        incoming = self.graph.incoming(address)
        edge = next((one for one in incoming if one.target_port == port), None)
        if edge is None:
            return [self._ask_unseen(PreSite(address, port))]
        tensors = self._origins(edge, frozenset(unified))
        for tensor in tensors:
            self.askers.setdefault(tensor, []).append((address, port))
        self.unify(tensors)
        return tensors

    def _ask_unseen(self, site: PreSite) -> Tensor:
        """Request an input without a traced producer, such as a scripted function's result."""
        tensor = (str(site), 0)
        self._unseen[tensor] = site
        self.askers[tensor] = [(site.address, site.port)]
        self.unify([tensor])
        return tensor

    def produce(self, tensor: Tensor, asker: str) -> None:
        """Request a tensor on behalf of the operation `asker` that produces it."""
        self.produced.add(tensor)
        self.askers.setdefault(tensor, []).append((asker, -1))
        self.unify([tensor])

    def pass_relus(self) -> None:
        """Move requests of producers past ReLUs that are the only readers of the tensor.

        Max poolings and movements in between are passed as well.

        An integer convolution can end after the ReLU too, as where the ReLU is fused into its
        kernel. If quantized before the ReLU, half of the integers would represent numbers that
        become 0, and the rest would be rounded again for the readers.
        """
        for tensor in sorted(self.produced):
            relus = self._relus_behind(tensor)
            asking = self.askers[tensor]
            if not relus or any(port >= 0 for _, port in asking):
                continue
            del self.askers[tensor]
            self.produced.remove(tensor)
            self._together.remove_node(tensor)
            for relu in relus:
                for address, _ in asking:
                    self.produce(relu, address)
            self.unify(relus)

    def unify(self, tensors: Iterable[Tensor]) -> None:
        """Make `tensors` share a scale."""
        tensors = list(tensors)
        self._together.add_nodes_from(tensors)
        self._together.add_edges_from(itertools.pairwise(tensors))

    def groups(self) -> list[list[Tensor]]:
        """Return the tensors that share a quantizer, in execution order."""
        order = {one.address: one.index for one in self.graph.operations}
        order |= {one: order[site.address] for (one, _), site in self._unseen.items()}
        ranked = [
            sorted(one, key=lambda tensor: (order.get(tensor[0], -1), tensor))
            for one in nx.connected_components(self._together)
        ]
        return sorted(ranked, key=lambda one: (order.get(one[0][0], -1), one[0]))

    def sites(self, tensor: Tensor) -> list[Site]:
        """Return the sites of the hooks that quantize `tensor`.

        This is the output of its producer if all readers can read it quantized, else the inputs
        of the readers that requested it. An assignment, such as `x[i] = y` or `x.relu_()` as a
        statement, has no output to hook, and nothing reads a hook on the tensor that it changes.
        """
        if tensor in self._unseen:
            return [self._unseen[tensor]]
        address, port = tensor
        edges = [one for one in self.graph.outgoing(address) if one.source_port == port]
        asked = [one for one in edges if (one.target, one.target_port) in self._covered]
        everywhere = tensor in self.produced or len(asked) == len(edges)
        producer = self.graph.get(address)
        is_assigned = producer is not None and producer.is_assignment
        if everywhere and not is_assigned and not is_model_input(address):
            return [PostSite(address, port)]
        return [
            PreSite(one.target, one.target_port)
            for one in asked
            if one.target_port or not self.graph.find(one.target).is_assignment
        ]

    def _relus_behind(self, tensor: Tensor) -> list[Tensor]:
        """Return the results of the ReLUs that read `tensor`; empty if anything else reads it."""
        address, port = tensor
        readers = [one.target for one in self.graph.outgoing(address) if one.source_port == port]
        operations = [self.graph.get(one) for one in readers]
        kinds = {"" if one is None else operation_kind(one.function) for one in operations}
        if len(readers) == 1 and kinds <= {"max_pool", *MOVEMENTS}:
            (one,) = operations
            is_whole = one is not None and len(one.outputs) == 1  # otherwise it can be a chunk
            return self._relus_behind((readers[0], 0)) if is_whole else []
        return [(one, 0) for one in readers] if kinds == {"relu"} else []

    def _origins(self, edge: Edge, unified: frozenset[str]) -> list[Tensor]:
        """Return the tensors whose elements `edge` carries, upstream of all movements."""
        self._covered.add((edge.target, edge.target_port))
        operation = self.graph.get(edge.source)
        if operation is None:
            return [(edge.source, edge.source_port)]
        kind = operation_kind(operation.function)
        incoming = self.graph.incoming(operation.address)
        data = [one for one in incoming if "float" in one.tensor.dtype]
        # parameters and constants created in the forward have no edge
        is_all = len(data) == sum(one is not None for one in operation.inputs)
        # a fill value must be on the grid, too
        is_filled = 0 < abs(operation.fill) < _MASKING
        if kind in MOVEMENTS and data and data[0].target_port == 0 and not is_filled:
            return self._origins(data[0], unified)
        if kind == "concat" and kind in unified and is_all:
            found = [tensor for one in data for tensor in self._origins(one, unified)]
            return list(dict.fromkeys(found))
        return [(edge.source, edge.source_port)]
