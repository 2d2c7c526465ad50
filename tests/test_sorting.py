"""Sorted values: torch's own order, and no index of 8 bytes beside them."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from nncfx.quantization.ranges.statistics import MeanQuantiles
from nncfx.schemes.kmeans import kmeans_1d
from nncfx.schemes.rate_distortion.entropy_grid import entropy_grids
from nncfx.sorting import ascending


class Sorts(TorchDispatchMode):
    """Collects how many values torch sorts, with an index for each."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in {torch.ops.aten.sort, torch.ops.aten.argsort}:
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32]
)
def test_values_are_sorted_as_torch_sorts_them(dtype: torch.dtype) -> None:
    values = torch.randn(7, 1000).mul(100).to(dtype)
    before = values.clone()
    found = ascending(values.T)
    assert found.dtype is dtype
    assert torch.equal(found, values.T.sort().values)
    assert torch.equal(values, before)


def test_infinities_stand_at_the_ends_and_nan_is_last() -> None:
    values = torch.tensor([math.nan, 1.0, math.inf, -math.inf, 0.0], requires_grad=True)
    expected = torch.tensor([-math.inf, 0.0, 1.0, math.inf, math.nan])
    assert torch.equal(ascending(values)[:4], expected[:4])
    assert ascending(values)[4].isnan()


def test_a_scalar_and_a_tensor_without_values_stay_what_they_are() -> None:
    assert torch.equal(ascending(torch.tensor(3.0)), torch.tensor(3.0))
    assert ascending(torch.empty(2, 0)).shape == (2, 0)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: kmeans_1d(x, 15),
        lambda x: entropy_grids({"w": x}, 4.0),
        lambda x: MeanQuantiles((0.01, 0.99)).update(x),
    ],
    ids=["k-means", "entropy grids", "percentiles"],
)
def test_no_index_of_all_values_is_made(work: Callable[[Tensor], object]) -> None:
    with Sorts() as sorts:
        work(torch.randn(2, 5000))
    assert not sorts.sizes
