"""The dearest family of sets that can be contiguous at once."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import ArgumentError
from nncfx.graph.contiguous_subset import contiguous_subset, overlap_components
from orders import consecutive_order

families = st.lists(st.integers(0, 2**8 - 1), min_size=1, max_size=7)


def dearest(sets: list[int], costs: list[int], required: list[int]) -> int:
    """Return the greatest cost of a subset with the property, by trying every subset."""
    values = [0]
    for choice in itertools.product([False, True], repeat=len(sets)):
        chosen = list(itertools.compress(sets, choice))
        if consecutive_order([*chosen, *required]) is not None:
            values.append(sum(itertools.compress(costs, choice)))
    return max(values)


@given(families, st.data())
def test_the_subset_has_the_property_and_the_greatest_cost(
    sets: list[int], data: st.DataObject
) -> None:
    costs = data.draw(st.lists(st.integers(0, 9), min_size=len(sets), max_size=len(sets)))
    chosen = contiguous_subset(sets, costs)
    assert consecutive_order([sets[index] for index in chosen]) is not None
    assert sum(costs[index] for index in chosen) == dearest(sets, costs, [])


@given(families, st.integers(1, 7))
def test_required_sets_stay_contiguous_beside_the_chosen(sets: list[int], cut: int) -> None:
    required = [(1 << cut) - 1, (1 << 8) - (1 << cut)]
    costs = [members.bit_count() for members in sets]
    chosen = contiguous_subset(sets, costs, required)
    assert consecutive_order([*required, *(sets[index] for index in chosen)]) is not None
    assert sum(costs[index] for index in chosen) == dearest(sets, costs, required)


def test_required_sets_without_the_property_are_refused() -> None:
    with pytest.raises(ArgumentError, match="lack the consecutive-ones property"):
        contiguous_subset([0b011], [1], [0b011, 0b110, 0b101])


def test_sets_of_cost_zero_are_kept_where_they_fit() -> None:
    assert contiguous_subset([0b011, 0b110], [0, 0]) == [0, 1]


@pytest.mark.parametrize("seed", range(3))
def test_edges_of_a_large_random_graph_form_nearly_as_many_paths_as_possible(seed: int) -> None:
    # Of sets of two elements, those that can be contiguous are edges of disjoint paths: at most
    # 31 edges of 32 elements. This is beyond what branch and bound proves in its time.
    graph = nx.gnm_random_graph(32, 64, seed=seed)
    sets = [1 << a | 1 << b for a, b in graph.edges]
    chosen = contiguous_subset(sets, [1] * len(sets))
    taken = nx.Graph(graph.edge_subgraph([list(graph.edges)[i] for i in chosen]))
    assert nx.is_forest(taken)
    assert max(degree for _, degree in taken.degree) <= 2
    assert 30 <= len(chosen) <= 31


def test_intervals_planted_among_random_sets_are_found() -> None:
    rng = np.random.default_rng(0)
    scattered = [sum(1 << int(e) for e in rng.permutation(256)[:40]) for _ in range(12)]
    # Each shares half with the next: all 20 at once, or few with a scattered one.
    planted = [((1 << 40) - 1) << 10 * start for start in range(20)]
    chosen = contiguous_subset(scattered + planted, [40] * 32)
    assert set(range(12, 32)) <= set(chosen)


@given(families)
def test_components_are_those_of_the_overlap_graph(sets: list[int]) -> None:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(sets)))
    for (i, one), (j, other) in itertools.combinations(enumerate(sets), 2):
        if one & other and one & ~other and other & ~one:
            graph.add_edge(i, j)
    expected = sorted(sorted(component) for component in nx.connected_components(graph))
    assert overlap_components(sets) == expected
