"""Rounding with feedback: GPTQ at no rate, and better than rounding alone at any."""

import torch

from nncfx.quantization.rate_distortion.error_feedback import LayerRounding
from nncfx.quantization.rounding.curvature import reconstruction_errors
from nncfx.schemes.rate_distortion.code_lengths import estimated_bits
from nncfx.schemes.rate_distortion.rounding import round_weights

GENERATOR = torch.Generator().manual_seed(0)
MIXED = torch.randn(400, 20, generator=GENERATOR) @ torch.randn(20, 100, generator=GENERATOR)
DATA = MIXED + 0.5 * torch.randn(400, 100, generator=GENERATOR)
MOMENTS = DATA.T @ DATA
WEIGHT = torch.randn(30, 100, generator=GENERATOR)
ROUNDING = LayerRounding(WEIGHT, MOMENTS, torch.ones(30))


def one_column_at_a_time(step: float) -> torch.Tensor:
    """Solve OBQ as it is written: after each column, invert what is left of the moments."""
    damped = MOMENTS.double() + 0.01 * MOMENTS.diagonal().mean() * torch.eye(100)
    left = MOMENTS.diagonal().argsort(descending=True, stable=True).tolist()
    rest = WEIGHT.double() / step
    while left:
        inverse = torch.linalg.inv(damped[left][:, left])
        rounded = rest[:, left[0]].round()
        error = (rest[:, left[0]] - rounded) / inverse[0, 0]
        rest[:, left] -= error.unsqueeze(1) * inverse[0]
        rest[:, left[0]] = rounded
        left.pop(0)
    return rest


def test_at_no_rate_it_is_gptq() -> None:
    found = ROUNDING.integers(0.5, 0.0)
    assert (found == one_column_at_a_time(0.5).float()).float().mean() > 0.99  # ties of floats


def test_feedback_costs_less_loss_and_rate_than_rounding_alone() -> None:
    rate = 3.0
    step = ROUNDING.best_step(rate)
    alone, _ = round_weights(WEIGHT, MOMENTS.diagonal(), step, rate)
    costs = []
    for integers in (ROUNDING.integers(step, rate), alone):
        loss = reconstruction_errors(WEIGHT, integers * step, MOMENTS).sum()
        costs.append(float(loss) + rate * estimated_bits(integers))
    assert costs[0] < 0.8 * costs[1]


def test_a_higher_rate_takes_fewer_bits() -> None:
    bits = [estimated_bits(ROUNDING.integers(0.5, rate)) for rate in (0.0, 5.0, 50.0)]
    assert bits[0] > bits[1] > bits[2]
