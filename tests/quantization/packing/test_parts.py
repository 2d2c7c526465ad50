"""Parts of products that the threads of torch take."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from nncfx.quantization.packing import parts
from nncfx.quantization.packing.parts import HAS_BLAS, CodedWeight, has_threads
from nncfx.storage.compiled import IS_COMPILED

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="needs numba")

CODES = torch.randint(-128, 128, (40, 1000), generator=torch.Generator().manual_seed(0))
BYTES = CODES.to(torch.int8)
SCALE = torch.rand(4, 1000, generator=torch.Generator().manual_seed(1))
WEIGHT = CODES * SCALE.repeat_interleave(10, 0)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    """Compute with more threads than divide the sizes."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def coded() -> CodedWeight:
    return CodedWeight(BYTES, SCALE, None, shift=0, group=10, is_packed=False)


def product(x: Tensor) -> Tensor:
    found = torch.zeros(len(x), 1000)
    coded().multiply(x, found)
    return found


def product_by_tiles(x: Tensor) -> Tensor:
    found = torch.full((len(x), 1000), torch.nan)
    coded().multiply_tiles(x, found)
    return found


@pytest.mark.skipif(not HAS_BLAS, reason="torch's BLAS is not to be had here")
def test_tiles_are_decoded_to_the_last_bit() -> None:
    """Products with rows of the unit matrix have one term that is not zero."""
    assert torch.equal(product_by_tiles(torch.eye(40)), WEIGHT)


@pytest.mark.skipif(not HAS_BLAS, reason="torch's BLAS is not to be had here")
def test_tiles_of_any_size_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads take two parts of 192 outputs each; 40 inputs are four tiles of 10."""
    x = torch.randn(7, 40, generator=torch.Generator().manual_seed(2))
    for size in ((11, 192), (40, 64), (1, 1024)):
        monkeypatch.setattr(parts, "_TILE", size)
        torch.testing.assert_close(product_by_tiles(x), x @ WEIGHT, rtol=1e-5, atol=2e-3)


def test_threads_multiply_each_column_once() -> None:
    """A product adds to its result, so that a part taken twice would count twice."""
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(2))
    # sums of 40 products of some hundreds, each rounded by 6e-8
    torch.testing.assert_close(product(x), x @ WEIGHT, rtol=1e-5, atol=2e-3)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 40)
    found = product(x)
    monkeypatch.setattr(parts, "_parallel", lambda: None)
    assert not has_threads()
    assert coded().threads == 1
    assert torch.equal(found, product(x))


def test_callers_in_several_threads_do_not_meet() -> None:
    x = [torch.randn(2, 40) for _ in range(50)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(product, x))
    assert all(torch.equal(one, product(rows)) for one, rows in zip(found, x, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_computes_alone() -> None:
    """Its parent's threads, which the library still counts on, are not there."""
    x = torch.ones(2, 40)
    expected = product(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(product(x), expected) and not has_threads() else 1)
    assert os.waitpid(child, 0)[1] == 0
