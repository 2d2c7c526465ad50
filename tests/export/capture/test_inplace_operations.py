"""Operations in place are replaced where, and only where, nobody sees the difference."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nncfx.export.capture.inplace_operations import is_inplace, replace_inplace_operations
from small_models import Applied


def _twice(x: Tensor) -> Tensor:
    y = x + 1
    z = y.mul_(3).clamp_(max=2)
    return y + z


def _unused_view(x: Tensor) -> Tensor:
    y = (x + 1).flatten(1)
    return torch.relu_(y)


def _seen_by_a_view(x: Tensor) -> Tensor:
    y = x + 1
    row = y[0]
    y.mul_(2)
    return row + y


def _of_a_view(x: Tensor) -> Tensor:
    y = x + 1
    y[0].mul_(2)
    return y


def _of_the_input(x: Tensor) -> Tensor:
    return x.mul_(2)


def _narrowing(x: Tensor) -> Tensor:
    return (x + 1).add_(torch.ones((), dtype=torch.float64))


def _filled(x: Tensor) -> Tensor:
    return (x + 1).fill_(3)


def _beside_vmap(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: row * 2)(x).relu_()


def _inside_vmap(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: (row * 2).add_(1))(x)


@pytest.mark.parametrize("function", [_twice, _unused_view, _filled, _beside_vmap, _inside_vmap])
def test_replaces_what_nobody_sees(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(2, 3)
    program = torch.export.export(Applied(function), (x,))
    assert any(map(is_inplace, program.graph.nodes))
    assert replace_inplace_operations(program.graph)
    assert not any(map(is_inplace, program.graph.nodes))
    program.graph_module.recompile()
    assert torch.equal(program.module()(x), function(x))


def _of_what_vmap_read(x: Tensor) -> Tensor:
    y = x + 1
    z = torch.vmap(lambda row: row.view(-1))(y)
    y.mul_(2)
    return y + z


@pytest.mark.parametrize(
    "function", [_of_what_vmap_read, _seen_by_a_view, _of_a_view, _of_the_input, _narrowing]
)
def test_leaves_alone_what_somebody_sees(function: Callable[[Tensor], Tensor]) -> None:
    program = torch.export.export(Applied(function), (torch.randn(2, 3),))
    before = str(program.graph)
    assert not replace_inplace_operations(program.graph)
    assert str(program.graph) == before
