"""Promises of nncfx.tracing.calls.function_names."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from nncfx.tracing.calls.function_names import Kind, kind, spelling


class _Spelt(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 (as torch calls it)
        self.names.append(spelling(func, kwargs))
        return func(*args, **(kwargs or {}))


X = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: x + X, "__add__"),
        (lambda x: x - 1, "__sub__"),
        (lambda x: 1 - x, "__rsub__"),
        (lambda x: x * X, "__mul__"),
        (lambda x: x / X, "__truediv__"),
        (lambda x: 1 / x, "__rtruediv__"),
        (lambda x: x // X, "__floordiv__"),
        (lambda x: x % 2, "__mod__"),
        (lambda x: x @ X, "__matmul__"),
        (lambda x: x**2, "__pow__"),
        (lambda x: 2**x, "__rpow__"),
        (lambda x: x.pow(2), "pow"),
        (lambda x: -x, "__neg__"),
        (lambda x: x > 0, "__gt__"),
        (lambda x: x == X, "__eq__"),
        (lambda x: x[0], "__getitem__"),
        (lambda x: x.__iadd__(X), "__iadd__"),
        (lambda x: x.__isub__(X), "__isub__"),
        (lambda x: x.__imul__(X), "__imul__"),
        (lambda x: x.__itruediv__(X), "__itruediv__"),
        (lambda x: torch.add(x, X), "add"),
        (lambda x: torch.matmul(x, X), "matmul"),
        (F.relu, "relu"),
        (lambda x: F.relu(x, inplace=True), "relu_"),
        (torch.relu_, "relu_"),
        (lambda x: F.relu6(x, inplace=True), "relu6"),
        (lambda x: F.max_pool2d(x[None], 2), "max_pool2d"),
        (lambda x: x.T, "T"),
        (lambda x: x.view(4), "view"),
    ],
)
def test_a_call_is_spelt_as_nncf_does(call: Callable[[torch.Tensor], object], name: str) -> None:
    with _Spelt() as spelt:
        call(X.clone())
    assert spelt.names[-1] == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("conv2d", Kind.OPERATION),
        ("contiguous", Kind.OPERATION),
        ("zeros", Kind.CONSTRUCTOR),
        ("new_ones", Kind.CONSTRUCTOR),
        ("cpu", Kind.PASSING),
    ],
)
def test_constructors_and_utilities_are_no_operations(name: str, expected: str) -> None:
    assert kind(name) == expected
