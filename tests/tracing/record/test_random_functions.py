"""A function is random if two seeds give two results."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nncfx.tracing.record.constant_operands import is_random

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "alpha_dropout": lambda x: F.alpha_dropout(x, training=True),
    "bernoulli": torch.bernoulli,
    "conv1d": lambda x: F.conv1d(x[None], x[:, :, None]),
    "dropout": F.dropout,
    "dropout1d": F.dropout1d,
    "exponential_": lambda x: x.clone().exponential_(),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, training=True),
    "gumbel_softmax": F.gumbel_softmax,
    "linear": lambda x: F.linear(x, x),
    "matmul": lambda x: torch.matmul(x, x),
    "multinomial": lambda x: torch.multinomial(x, 2),
    "normal": torch.normal,
    "normalize": F.normalize,
    "poisson": lambda x: torch.poisson(9 * x),
    "rrelu": lambda x: F.rrelu(-x, training=True),
    "softmax": lambda x: F.softmax(x, -1),
    "uniform_": lambda x: x.clone().uniform_(),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_random_if_seeds_change_it(name: str) -> None:
    x = torch.linspace(0.1, 0.9, 64).reshape(8, 8)
    results = []
    for seed in range(2):
        torch.manual_seed(seed)
        results.append(CALLS[name](x))
    assert is_random(name) != torch.equal(*results)
