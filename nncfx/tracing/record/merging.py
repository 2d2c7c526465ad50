"""Merge the traces of several example inputs."""

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import networkx as nx

from nncfx.errors import TracingError
from nncfx.graph import Edge, NNCFGraph
from nncfx.tracing.calls.module_stack import Place, Wiring, visits_of

K = TypeVar("K")


def merged_graphs(graphs: Sequence[NNCFGraph]) -> NNCFGraph:
    """Return a graph with the operations and edges of all `graphs`.

    An operation in several graphs is taken from the first, including shapes. Every producer
    precedes its consumers, and the order is as close as possible to the order of execution. Inputs
    and outputs are those of the graph that has most.

    Raises:
        TracingError: two graphs call two operations in opposite orders, so a merged graph would
            have a cycle.
    """
    first = {one.address: one for graph in reversed(graphs) for one in graph.operations}
    edges = {
        (e.source, e.source_port, e.target, e.target_port): e for g in graphs for e in g.edges
    }
    rank = {
        address: position
        for position, address in enumerate(
            dict.fromkeys(address for graph in graphs for address in graph.addresses)
        )
    }
    order = _ordered(rank, edges.values())
    operations = tuple(first[one]._replace(index=index) for index, one in enumerate(order))
    place = {one: index for index, one in enumerate(order)}
    return NNCFGraph(
        operations=operations,
        edges=tuple(
            sorted(edges.values(), key=lambda e: (place.get(e.target, len(order)), e.target_port))
        ),
        inputs=max((graph.inputs for graph in graphs), key=len),
        outputs=max((graph.outputs for graph in graphs), key=len),
    )


def _ordered(rank: Mapping[str, int], edges: Iterable[Edge]) -> list[str]:
    drawn: nx.DiGraph[str] = nx.DiGraph()
    drawn.add_nodes_from(rank)
    drawn.add_edges_from(
        (one.source, one.target) for one in edges if one.source in rank and one.target in rank
    )
    try:
        return list(nx.lexicographical_topological_sort(drawn, key=rank.__getitem__))
    except nx.NetworkXUnfeasible as error:
        cycle = [source for source, _ in nx.find_cycle(drawn)]
        raise TracingError(
            f"The example inputs make the model call {', '.join(cycle)} in different orders; one "
            "graph cannot hold both. Wrap the model with the inputs of one order."
        ) from error


def merged_wirings(wirings: Sequence[Wiring]) -> Wiring:
    """Return where the operations of all traces are in their modules.

    Raises:
        TracingError: an operation is a different call of its module in different traces.
    """
    addresses = dict.fromkeys(one for wiring in wirings for one in wiring.places)
    callees: dict[str, dict[str, None]] = {}
    for wiring in wirings:
        for name, below in wiring.callees.items():
            callees.setdefault(name, {}).update(dict.fromkeys(below))
    called = [wiring.called for wiring in wirings]
    counts = _most(wiring.counts for wiring in wirings)
    calls = _most(wiring.calls for wiring in wirings)
    return Wiring(
        places={address: _place(address, wirings, called) for address in addresses},
        calls=calls,
        callees={name: tuple(below) for name, below in callees.items()},
        counts=counts,
        on_floats=_most(wiring.on_floats for wiring in wirings),
        varying=frozenset(
            call for call in counts if len({one.counts.get(call, 0) for one in wirings}) > 1
        ).union(
            visits_of(name) for name in calls if len({one.calls.get(name) for one in wirings}) > 1
        ),
        folded=frozenset[str]().union(*(wiring.folded for wiring in wirings)),
        bypassed=frozenset[str]().union(*(wiring.bypassed for wiring in wirings)),
    )


def _most(tables: Iterable[Mapping[K, int]]) -> Counter[K]:
    """Return the largest count of each key."""
    return functools.reduce(operator.or_, map(Counter, tables))


def _place(address: str, wirings: Sequence[Wiring], called: Sequence[set[str]]) -> Place:
    found = [wiring.places[address] for wiring in wirings if address in wiring.places]
    place = found[0]
    if any((one.module, one.call[1]) != (place.module, place.call[1]) for one in found):
        raise TracingError(
            f"'{address}' is not the same call of '{place.module}' on all example inputs, so a "
            "hook there would not know its place. Wrap the model with one of them."
        )
    # it is the module's only call if this holds in every trace that calls the module
    callers = [one for one, names in zip(wirings, called, strict=True) if place.module in names]
    is_always = all(wiring.places.get(address) == place for wiring in callers)
    return place if is_always else replace(place, boundary=None)
