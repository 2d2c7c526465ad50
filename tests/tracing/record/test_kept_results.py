"""Results that functools keeps are constants of a trace, as they are of later forwards."""

from collections.abc import Callable
from functools import cache, lru_cache, wraps

import pytest
import torch
from torch import Tensor, nn

import nncfx
from small_models import Function

X = torch.linspace(-1, 1, 24).view(4, 6)


def made_of(size: int) -> Tensor:
    return torch.arange(size).float().outer(torch.ones(size)).sin() + 1


@cache
def global_table(size: int) -> Tensor:
    return made_of(size) * 2


def as_global() -> Callable[[int], Tensor]:
    """Return a global function that has kept nothing yet."""
    global_table.cache_clear()
    return global_table


def as_method() -> Callable[[int], Tensor]:
    """Return a method that keeps its results."""

    class Tables:
        @lru_cache(maxsize=1)  # noqa: B019 (as models have it)
        def table(self, size: int) -> Tensor:
            return made_of(size) * 2

    return Tables().table


def as_compiled() -> Callable[[int], Tensor]:
    """Return a function that is called past its cache while compiled, as transformers do it."""

    def table(size: int) -> Tensor:
        return made_of(size) * 2

    return past_the_cache(table)


def past_the_cache(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    kept = lru_cache(maxsize=1)(function)

    @wraps(function)
    def wrapper(*args: object, **kwargs: object) -> Tensor:
        is_new = torch.compiler.is_compiling()
        return function(*args, **kwargs) if is_new else kept(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("way", [as_global, as_method, as_compiled])
def test_a_new_and_a_kept_table_give_one_graph(way: Callable[[], Callable[[int], Tensor]]) -> None:
    table = way()
    model = Function(
        lambda m, x: m.last(m.first(x) @ table(6)), first=nn.Linear(6, 6), last=nn.ReLU()
    )
    new = nncfx.wrap(model, X).nncf.graph
    assert new.addresses == [
        *("Function/Linear[first]/linear_0", "Function/__matmul___0", "Function/ReLU[last]/relu_0")
    ]
    assert nncfx.wrap(nncfx.unwrap(model), X).nncf.graph == new


def test_a_model_that_keeps_a_table_is_calibrated() -> None:
    table = as_compiled()
    model = Function(lambda m, x: m.first(x) @ table(6), first=nn.Linear(6, 6)).eval()
    quantized = nncfx.quantize(model, [X])
    first, table_values = model.first(X), 2 * made_of(6)
    # the input, the weight, their product and the table are rounded to 1/127 or finer
    most = 4 / 127 * (first.abs() @ table_values).max()
    assert (quantized(X) - first @ table_values).abs().max() < most
