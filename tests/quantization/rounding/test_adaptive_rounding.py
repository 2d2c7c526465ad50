"""Rounding that is learned."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nncfx.errors import ArgumentError
from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.rounding.adaptive_rounding import RoundingSettings, adaptive_rounding

SPEC = QuantizerSpec(bits=4, axis=0, narrow=True)


def grid(weight: Tensor, spec: QuantizerSpec = SPEC) -> tuple[Tensor, Tensor, QuantizerSpec]:
    rows = weight.flatten(1) if spec.group is None else weight.reshape(-1, spec.group)
    return (*qparams_from_range(rows.amin(1), rows.amax(1), spec), spec)


def linear_case(inputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a weight, correlated inputs, and the outputs wanted."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(4, inputs, generator=generator)
    data = torch.randn(200, 4, generator=generator) @ mixing
    weight = torch.randn(6, inputs, generator=generator)
    return weight, data, data @ weight.T


@pytest.mark.parametrize("spec", [SPEC, QuantizerSpec(bits=4, group=6)])
def test_learned_rounding_of_a_linear_layer_loses_less_than_half(spec: QuantizerSpec) -> None:
    weight, inputs, targets = linear_case(12)
    found = adaptive_rounding(F.linear, weight, grid(weight, spec), (inputs, targets))
    nearest = fake_quantize(weight, *grid(weight, spec))
    errors = [(F.linear(inputs, one) - targets).square().mean() for one in (found, nearest)]
    assert errors[0] < errors[1] / 2


def test_learned_rounding_of_a_convolution_loses_less() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, 3, 3, generator=generator)
    inputs = torch.randn(8, 3, 6, 6, generator=generator).cumsum(-1)
    found = adaptive_rounding(F.conv2d, weight, grid(weight), (inputs, F.conv2d(inputs, weight)))
    nearest = fake_quantize(weight, *grid(weight))
    errors = [F.conv2d(inputs, one - weight).square().mean() for one in (found, nearest)]
    assert errors[0] < errors[1] / 2


def test_it_is_among_the_best_tenth_of_all_roundings() -> None:
    weight, inputs, targets = linear_case(8)
    weight, targets = weight[:1], targets[:, :1]
    scale, zero_point, spec = grid(weight)
    below = torch.floor(weight / scale.view(-1, 1))
    choices = torch.tensor(list(itertools.product((0.0, 1.0), repeat=8)))
    every = ((below + choices) * scale).clamp(-7 * scale.item(), 7 * scale.item())
    errors = (inputs @ every.T - targets).square().mean(0)
    found = adaptive_rounding(F.linear, weight, (scale, zero_point, spec), (inputs, targets))
    rank = (errors < (inputs @ found.T - targets).square().mean() * 0.999).sum()
    assert rank < 26  # of 256


def test_every_element_is_one_of_its_two_neighbours_on_the_grid() -> None:
    weight, inputs, targets = linear_case(12)
    found = adaptive_rounding(F.linear, weight, grid(weight), (inputs, targets))
    assert torch.equal(fake_quantize(found, *grid(weight)), found)
    steps = grid(weight)[0].view(-1, 1)
    assert ((found - weight).abs() < steps * 1.0001).all()


def test_too_few_steps_leave_rounding_to_nearest() -> None:
    weight, inputs, targets = linear_case(12)
    hasty = RoundingSettings(steps=1, lr=100.0)
    found = adaptive_rounding(F.linear, weight, grid(weight), (inputs, targets), hasty)
    nearest = fake_quantize(weight, *grid(weight))
    errors = [(F.linear(inputs, one) - targets).square().mean() for one in (found, nearest)]
    assert errors[0] <= errors[1]


def test_a_layer_that_is_on_the_grid_already_stays() -> None:
    weight, inputs, _ = linear_case(12)
    weight = fake_quantize(weight, *grid(weight))
    exact = F.linear(inputs, weight)
    assert torch.equal(adaptive_rounding(F.linear, weight, grid(weight), (inputs, exact)), weight)


def test_the_same_seed_gives_the_same_rounding() -> None:
    weight, inputs, targets = linear_case(12)
    few = RoundingSettings(steps=20)
    first, second = (
        adaptive_rounding(F.linear, weight, grid(weight), (inputs, targets), few) for _ in range(2)
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", ["steps", "batch", "lr", "regularization"])
def test_a_setting_that_is_not_positive_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is 0; it must be positive"):
        RoundingSettings(**{name: 0})
