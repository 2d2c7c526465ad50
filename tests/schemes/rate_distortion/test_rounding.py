"""Rounding takes the integers of least loss plus rate, and steps are those of theory."""

import math

import pytest
import torch

from nncfx.schemes.rate_distortion.code_lengths import estimated_bits
from nncfx.schemes.rate_distortion.rounding import (
    best_step,
    cheapest,
    finest_step,
    round_weights,
    short_step,
)

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(64, 128, generator=GENERATOR)


def test_at_no_rate_it_rounds_to_nearest() -> None:
    integers, _ = round_weights(WEIGHT, torch.ones(()), 0.25, 0.0)
    assert torch.equal(integers, (WEIGHT / 0.25).round())


def test_the_best_of_all_integers_is_found() -> None:
    _, lengths = round_weights(WEIGHT, torch.ones(()), 0.5, 0.01)
    steps, contexts = WEIGHT / 0.5, lengths.contexts
    found = cheapest(steps, contexts, lengths, torch.tensor(0.25), 0.01)
    every = torch.arange(-lengths.largest, lengths.largest + 1.0)
    cost = 0.25 * (steps.unsqueeze(-1) - every).square()
    cost = cost + 0.01 * lengths.bits[contexts]
    least = cost.amin(-1)
    its = 0.25 * (steps - found).square() + 0.01 * lengths.of(found, contexts)
    # only integers between the nearest and zero are looked at
    assert (its <= least + 1e-6).float().mean() > 0.99


def test_rate_buys_bits_at_the_price_asked() -> None:
    """Along the curve of one step, the loss that a bit saves is about the rate."""
    curve = []
    for rate in (0.02, 0.0205):
        integers, _ = round_weights(WEIGHT, torch.ones(()), 0.5, rate)
        loss = float((integers * 0.5 - WEIGHT).square().sum())
        curve.append((loss, estimated_bits(integers)))
    (loss, bits), (more, fewer) = curve
    assert more > loss
    assert (more - loss) / (bits - fewer) == pytest.approx(0.02, rel=0.5)


def test_the_step_is_that_of_a_uniform_quantizer() -> None:
    # loss c d^2 / 12 falls by c d^2 ln(2) / 6 with a bit more
    step = best_step(torch.tensor([2.0, 8.0]), 0.01)
    assert 4.0 * step**2 * math.log(2) / 6 == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("largest", [1.0, 1.0039, 1.3, 7.77])
def test_at_the_finest_step_no_weight_is_cut(largest: float) -> None:
    weight = torch.tensor([[largest, -0.5, 0.25]])
    step = finest_step(weight)
    integers, _ = round_weights(weight, torch.ones(3), step, 1e-12)
    assert (integers * step - weight).abs().max() <= step / 2 + 1e-7
    assert 4000 <= integers.abs().max() <= 4095


def test_products_of_a_short_step_are_exact_in_float32() -> None:
    step = short_step(0.0123)
    assert step == pytest.approx(0.0123, rel=1 / 256)
    products = torch.arange(4096).float() * torch.tensor(step)
    assert torch.equal(products.double(), torch.arange(4096).double() * step)
