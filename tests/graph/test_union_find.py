"""Disjoint sets of integers."""

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nncfx.graph.union_find import UnionFind

pairs = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30)


def united(edges: list[tuple[int, int]]) -> list[int]:
    sets = UnionFind()
    sets.grow(20)
    for edge in (np.array(edges, dtype=np.int64).reshape(-1, 2),):
        sets.union(edge[:, 0], edge[:, 1])
    return [int(root) for root in sets.find(np.arange(20))]


@given(pairs)
def test_sets_are_the_connected_components_named_by_their_smallest(
    edges: list[tuple[int, int]],
) -> None:
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(20))
    expected = {
        n: min(component) for component in nx.connected_components(graph) for n in component
    }
    assert united(edges) == [expected[n] for n in range(20)]


@given(pairs)
def test_the_order_of_unions_does_not_matter(edges: list[tuple[int, int]]) -> None:
    assert united(edges) == united(edges[::-1])


def test_growing_keeps_what_is_united() -> None:
    sets = UnionFind()
    sets.grow(2)
    sets.union(np.array([0]), np.array([1]))
    assert sets.grow(3).tolist() == [2, 3, 4]
    assert sets.find(np.arange(5)).tolist() == [0, 0, 2, 3, 4]
    assert len(sets) == 5


def test_integers_may_be_made_one_by_one() -> None:
    sets = UnionFind()
    for count in range(1, 20):
        assert sets.grow(1).tolist() == [count - 1]
        assert sets.roots().tolist() == [*range(count), -1]


def test_nothing_stands_for_itself_however_many_integers_there_are() -> None:
    sets = UnionFind()
    assert sets.find(np.array([-1])).tolist() == sets.roots().tolist() == [-1]
    sets.grow(3)
    assert sets.roots().tolist() == [0, 1, 2, -1]


def test_unions_are_counted_where_they_change_something() -> None:
    sets = UnionFind()
    sets.grow(3)
    assert sets.unions == 0
    sets.union(np.array([0]), np.array([1]))
    sets.union(np.array([1]), np.array([0]))
    assert sets.unions == 1
