"""Promises of nncfx.graph.selection."""

import pytest
import torch
from pytorchcv.models.resnet_cifar import resnet20_cifar10

from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph
from nncfx.tracing import trace


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


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("conv2d", "{function}conv2d"),
        ("{function}conv", "{function}conv2d"),
        ("features.stage1", r"{re}^CIFARResNet/Sequential\[features\]/Sequential\[stage1\]/"),
        ("output", "CIFARResNet/Linear[output]"),
        ("output.weight", "CIFARResNet/Linear[output]"),
        ("Linear", r"{re}Linear\["),
        ("CIFARResNet/linear[output]", "CIFARResNet/Linear[output]"),
        ("zzz", None),
    ],
)
def test_a_pattern_that_selects_nothing_gets_one_that_does(
    written: str, meant: str | None
) -> None:
    graph = trace(resnet20_cifar10(), torch.zeros(1, 3, 32, 32))
    assert graph.unmatched([written]) == [written]
    assert graph.hint(written) == (f" Did you mean '{meant}'?" if meant else "")
    if meant is not None:
        assert graph.select([meant])
