"""Grids take the bits asked for, and say what each weight costs."""

import math

import numpy as np
import pytest
import torch

from nncfx.errors import ArgumentError
from nncfx.schemes.rate_distortion.entropy_grid import (
    EntropyGrid,
    bits_of_level,
    entropy_grids,
    grid_step,
)

GENERATOR = torch.Generator().manual_seed(0)
WEIGHTS = {
    "a": torch.randn(200, 100, generator=GENERATOR),
    "b": 0.01 * torch.randn(50, 40, generator=GENERATOR),
}


def entropy(integers: torch.Tensor) -> float:
    """Return the order-0 entropy of all entries, in bits."""
    counts = torch.unique(integers, return_counts=True)[1].double()
    return float(-(counts * (counts / counts.sum()).log2()).sum())


@pytest.mark.parametrize("bits", [0.2, 1.0, 3.0, 6.0, 12.0])
def test_the_entropy_of_all_integers_is_what_was_asked_for(bits: float) -> None:
    grids = entropy_grids(WEIGHTS, bits)
    total = sum(entropy(grids[name].integers(one)) for name, one in WEIGHTS.items())
    # at many bits the distinct values are as many as the weights, and entropy is short of bits
    assert total / 22_000 == pytest.approx(bits, rel=0.03 if bits < 12 else 0.2)
    said = sum(grids[name].code_length(grids[name].rounded(one)) for name, one in WEIGHTS.items())
    assert float(said) <= 22_000 * bits * 1.0001


def test_a_uniform_quantizer_of_a_normal_variable_is_as_far_from_the_bound_as_known() -> None:
    """At 3 bits, entropy-coded uniform quantization loses 0.25 bits (Gish and Pierce 1968)."""
    weight = {"a": WEIGHTS["a"]}
    grid = entropy_grids(weight, 3.0)["a"]
    error = float((grid.rounded(WEIGHTS["a"]) - WEIGHTS["a"]).square().mean())
    lost = 3.0 - 0.5 * math.log2(1 / error)
    assert lost == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("bits", [0.5, 3, 12])
def test_bits_of_integers_are_those_of_their_shares(bits: float) -> None:
    weight = torch.randn(4000, generator=torch.Generator().manual_seed(0)) ** 3
    grid = entropy_grids({"w": weight}, bits)["w"]
    sizes = grid.integers(weight).abs().clamp(max=64).long()
    counts = torch.bincount(sizes, minlength=65).double()
    counts[: int(grid.integers(weight).abs().max()) + 2] += 0.5  # one that is next may come
    expected = -(counts / counts.sum()).log2() + (torch.arange(65) > 0)
    met = torch.bincount(sizes, minlength=65)[:64] > 0  # the last stands for a tail
    torch.testing.assert_close(grid.bits[:64][met].double(), expected[:64][met])


def test_small_layers_get_more_bits() -> None:
    grids = entropy_grids(WEIGHTS, 2.0)
    per_weight = {
        name: entropy(grids[name].integers(one)) / one.numel() for name, one in WEIGHTS.items()
    }
    # ten times the weights, and errors that count 10**-0.5 times: a quarter of log2(10) bits
    assert per_weight["b"] - per_weight["a"] == pytest.approx(0.25 * math.log2(10), abs=0.15)


def test_the_code_length_falls_towards_zero_and_its_gradient_is_the_price_of_a_step() -> None:
    grid = entropy_grids(WEIGHTS, 3.0)["a"]
    weight = (torch.tensor([0.5, -1.5, 2.25, 80.0]) * grid.step).requires_grad_()
    length = grid.code_length(weight)
    length.backward()
    rises = [grid.bits[1] - grid.bits[0], -(grid.bits[2] - grid.bits[1])]
    wanted = torch.stack([*rises, grid.bits[3] - grid.bits[2], grid.slope]) / grid.step
    torch.testing.assert_close(weight.grad, wanted)
    halves = (grid.bits[0] + grid.bits[1]) / 2, (grid.bits[1] + grid.bits[2]) / 2
    part = grid.bits[2] + 0.25 * (grid.bits[3] - grid.bits[2])
    tail = grid.bits[64] + 16 * grid.slope
    torch.testing.assert_close(length.detach(), sum(halves) + part + tail)


def test_the_gradient_passes_the_rounding() -> None:
    grid = entropy_grids(WEIGHTS, 1.0)["a"]
    weight = WEIGHTS["a"].clone().requires_grad_()
    (grid.rounded(weight) * 3).sum().backward()
    assert torch.equal(weight.grad, torch.full_like(weight, 3.0))
    assert torch.equal(grid.rounded(weight).detach(), grid.rounded(WEIGHTS["a"]))


def test_zeros_alone_take_no_bits() -> None:
    grids = entropy_grids({"zeros": torch.zeros(9), "a": WEIGHTS["a"]}, 1.0)
    assert not grids["zeros"].rounded(torch.zeros(9)).any()
    assert grids["zeros"].code_length(torch.zeros(9)) == 0


def test_bits_that_cannot_be_are_refused() -> None:
    with pytest.raises(ArgumentError, match="bits is 0"):
        entropy_grids(WEIGHTS, 0)


def test_steps_are_found_where_there_are_any() -> None:
    integers = torch.randint(-9, 10, (300,), generator=GENERATOR)
    assert grid_step(integers * 0.0859375) == 0.0859375
    assert grid_step(torch.tensor([4.0, 6.0, 9.0])) == 1.0  # the smallest gap is 2
    assert grid_step(torch.zeros(3)) == 1.0
    assert grid_step(torch.arange(60_000) * 0.0859375) == 0.0859375
    assert grid_step(torch.arange(70_000) * 0.0859375) is None  # 2^16 steps
    assert grid_step(torch.tensor([1.0, torch.inf])) is None
    assert grid_step(torch.tensor([1.0, torch.nan])) is None
    assert grid_step(torch.tensor([3e-45, 1e-45])) == 2**-149  # the smallest float32
    assert grid_step(WEIGHTS["a"]) is None
    assert grid_step(WEIGHTS["b"][0]) is None


def test_bits_of_a_level_are_the_rest_of_a_float32() -> None:
    assert bits_of_level(0.75) == 8
    grid = EntropyGrid(*(torch.ones(()) for _ in range(4)))
    assert grid.step == 1


@pytest.mark.parametrize(
    "moved",
    [
        [(3, 3.75), (4, 3.75), (5, 3.75)],  # equal ones
        [(3, 3.75), (4, 3.76)],  # two in a cell
        [(0, -0.2), (1, 0.0), (2, 1.0)],  # below 0, and at the edges of cells
        [],
    ],
)
def test_integers_are_counts_of_thresholds_below(moved: list[tuple[int, float]]) -> None:
    thresholds = torch.arange(64) + 0.5
    for place, value in moved:
        thresholds[place] = value
    grid = EntropyGrid(torch.tensor(0.25), torch.zeros(65), thresholds, torch.tensor(1.0))
    # among them the thresholds themselves, and magnitudes beyond all
    sizes = torch.cat([torch.linspace(0, 90, 20_000), thresholds.clamp(min=0)])
    counts = np.searchsorted(thresholds.numpy(), sizes.numpy(), side="left").astype(np.float32)
    expected = np.where(sizes.numpy() > 64.5, np.round(sizes.numpy()), counts)
    expected[sizes.numpy() == 0] = 0  # which no sign moves
    found = grid.integers(-sizes / 4)
    assert np.array_equal(found.numpy(), -expected)
    assert torch.equal(grid.integers(-sizes[-64:] / 4), found[-64:])  # too few for a table


def test_no_zero_is_negative() -> None:
    grid = entropy_grids(WEIGHTS, 1.0)["a"]
    on_grid = grid.rounded(WEIGHTS["a"])
    assert not on_grid[on_grid == 0].signbit().any()


def test_nothing_but_the_weight_is_kept_for_the_backward_pass() -> None:
    weight = WEIGHTS["a"].clone().requires_grad_()
    grid = entropy_grids(WEIGHTS, 3.0)["a"]
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        (grid.rounded(weight).sum() + grid.code_length(weight)).backward()
    large = [one for one in kept if one.numel() > 65]
    assert all(one.data_ptr() == weight.data_ptr() for one in large)
