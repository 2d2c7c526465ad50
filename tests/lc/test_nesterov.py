"""The built-in optimizer is Nesterov's, with a velocity that keeps its length."""

import pytest
import torch
from torch import nn

from nncfx.lc import Nesterov


def run(optimizer: torch.optim.Optimizer, weight: nn.Parameter, rates: list[float]) -> list[float]:
    path = []
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        (weight.square().sum() * 0.5).backward()
        optimizer.step()
        path.append(weight.item())
    return path


def test_two_steps_by_hand() -> None:
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    path = run(Nesterov([weight], 0.1, momentum=0.5), weight, [0.1, 0.2])
    # gradient is w.  v = -0.1, w = 1 - 0.1 - 0.05 = 0.85;
    # v = -0.05 - 0.2 * 0.85 = -0.22, w = 0.85 - 0.17 - 0.11 = 0.57
    assert path == pytest.approx([0.85, 0.57])


def test_at_a_constant_rate_it_is_torchs() -> None:
    ours = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    theirs = nn.Parameter(ours.detach().clone())
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    path = run(Nesterov([ours], **settings), ours, [0.1] * 20)
    reference = run(torch.optim.SGD([theirs], nesterov=True, **settings), theirs, [0.1] * 20)
    assert path == pytest.approx(reference, rel=1e-12)


def test_parameters_without_gradient_stay() -> None:
    used, unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = Nesterov([used, unused], 0.1)
    used.sum().backward()
    optimizer.step()
    assert unused.item() == 1.0
    assert used.item() < 1.0


def test_a_closure_is_evaluated_with_gradients() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = Nesterov([weight], 0.1, momentum=0.0)

    def closure() -> float:
        loss = weight.sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 1.0
    assert weight.item() == pytest.approx(0.9)


def test_the_momentum_is_nine_tenths_if_none_is_given() -> None:
    weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    # v = -0.1 * 1, w = 1 - 0.1 - 0.9 * 0.1
    assert run(Nesterov([weight], 0.1), weight, [0.1]) == pytest.approx([0.81])


def test_a_group_of_which_nothing_has_a_gradient_stays() -> None:
    weight = nn.Parameter(torch.ones(1))
    Nesterov([weight], 0.1).step()
    assert weight.item() == 1.0
