"""Promises of nncfx.tracing.record.dropped_results."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from small_models import Function


def method(y: Tensor, *_: nn.Module) -> Tensor:
    y.relu_()
    return y


def function(y: Tensor, *_: nn.Module) -> Tensor:
    F.relu(y, inplace=True)
    return y


def module(y: Tensor, act: nn.Module) -> Tensor:
    act(y)
    return y


def view(y: Tensor, *_: nn.Module) -> Tensor:
    y[0].copy_(y[1])
    return y


def out(y: Tensor, *_: nn.Module) -> Tensor:
    torch.exp(y, out=y)
    return y


def assigned(y: Tensor, act: nn.Module) -> Tensor:
    y = y.relu_()
    y = act(y)
    return F.relu(y, inplace=True)


def chained(y: Tensor, *_: nn.Module) -> Tensor:
    return y.relu_().mul_(2)


def new(y: Tensor, *_: nn.Module) -> Tensor:
    torch.relu(y)
    y += 1
    return y


@pytest.mark.parametrize(
    ("call", "is_statement"),
    [
        *[(one, True) for one in (method, function, module, view, out)],
        *[(one, False) for one in (assigned, chained, new)],
    ],
)
def test_statements_that_change_a_tensor_are_told_from_expressions(
    call: Callable[[Tensor, nn.Module], Tensor], *, is_statement: bool
) -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        return call(x * 2, m.act)

    model = Function(forward, act=nn.ReLU(inplace=True))
    operations = nncfx.trace(model, torch.ones(2, 3)).operations
    assert any(one.is_statement for one in operations) is is_statement
