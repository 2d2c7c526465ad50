"""Promises of nncfx.graph.selection."""

import pytest

from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph


@pytest.mark.parametrize(
    ("pattern", "functions"),
    [
        ("Net/relu_0", ["relu"]),
        ("Net/Conv2d[conv]", ["conv2d"]),
        ("Net", ["relu", "__add__"]),
        ("Net/Conv2d", []),
        ("{function}relu", ["relu"]),
        ("{function}rel", []),
        ("{re}conv", ["conv2d"]),
        ("{re}^Net/[^/]*_0$", ["relu", "__add__"]),
        (r"Net/{re}Conv2d\[", ["conv2d"]),
    ],
)
def test_a_pattern_selects(graph: NNCFGraph, pattern: str, functions: list[str]) -> None:
    assert [one.function for one in graph.select([pattern])] == functions


def test_selected_operations_come_once_and_in_execution_order(graph: NNCFGraph) -> None:
    assert graph.select(["Net/relu_0", "{re}."]) == list(graph.operations)


def test_no_pattern_selects_nothing(graph: NNCFGraph) -> None:
    assert graph.select([]) == []


def test_unmatched_returns_what_selects_nothing(graph: NNCFGraph) -> None:
    assert graph.unmatched(["Net", "Nut", "{re}x{9}", "{re}relu"]) == ["Nut", "{re}x{9}"]


def test_a_faulty_regular_expression_is_named(graph: NNCFGraph) -> None:
    with pytest.raises(GraphError, match=r"'\{re\}Conv2d\[conv' holds no regular expression"):
        graph.select(["{re}Conv2d[conv"])
