"""The penalty's gradient is the augmented Lagrangian's, and multipliers move as they should."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from nncfx.lc.lagrangian import Lagrangian, augmented_penalty, next_mu


def double_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


@given(mu=st.floats(1e-3, 1e3), seed=st.integers(0, 20))
@example(mu=1.0, seed=0)
def test_the_gradient_is_autograds(mu: float, seed: int) -> None:
    model = double_model()
    generator = torch.Generator().manual_seed(seed)
    names = ["0.weight", "2.weight", "2.bias"]
    lagrangian = Lagrangian.of(model, names)
    # two updates, so that neither theta nor lambda is zero
    thetas: dict[str, torch.Tensor] = {}
    multipliers = {name: torch.zeros_like(model.get_parameter(name)) for name in names}
    for _ in range(2):
        lagrangian.mu = mu
        for name in names:
            weight = model.get_parameter(name)
            thetas[name] = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            multipliers[name] = multipliers[name] - mu * (weight.detach() - thetas[name])
        lagrangian.update(thetas)
    inputs = torch.randn(5, 3, generator=generator, dtype=torch.float64)

    model(inputs).square().sum().backward()
    lagrangian.add_gradient()
    ours = [p.grad.clone() for p in model.parameters() if p.grad is not None]

    model.zero_grad()
    penalty = sum(
        augmented_penalty(model.get_parameter(name), thetas[name], multipliers[name], mu)
        for name in names
    )
    (model(inputs).square().sum() + penalty).backward()
    theirs = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(ours) == len(theirs) == 4
    for a, b in zip(ours, theirs, strict=True):
        # sums of a few terms of size up to mu * 10, in another order
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12 * mu)


def test_without_mu_nothing_is_added() -> None:
    model = nn.Linear(1, 1)
    lagrangian = Lagrangian.of(model, ["weight"])
    lagrangian.update({"weight": torch.tensor([[9.0]])})
    model(torch.ones(1, 1)).sum().backward()
    lagrangian.add_gradient()
    assert model.weight.grad.tolist() == [[1.0]]


def test_one_iteration_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 3.0)
    lagrangian = Lagrangian.of(model, ["weight"])
    lagrangian.mu = 0.5
    lagrangian.update({"weight": torch.tensor([[1.0]])})
    # lambda = 0 - 0.5 * (3 - 1) = -1; shifted = 3 - (-1) / 0.5 = 5; gradient = 0.5 * 2 + 1 = 2
    target = nn.Linear(1, 1, bias=False)
    lagrangian.shift(target)
    assert target.weight.item() == 5.0
    model.weight.grad = torch.zeros(1, 1)
    lagrangian.add_gradient()
    assert model.weight.grad.item() == 2.0
    assert lagrangian.distance() == 2.0


def test_the_quadratic_penalty_has_no_multipliers() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 3.0)
    lagrangian = Lagrangian.of(model, ["weight"], multipliers=False)
    lagrangian.mu = 0.5
    lagrangian.update({"weight": torch.tensor([[1.0]])})
    model.weight.grad = torch.zeros(1, 1)
    lagrangian.add_gradient()
    assert model.weight.grad.item() == 1.0


def test_frozen_parameters_are_not_penalised() -> None:
    model = nn.Linear(1, 1)
    model.weight.requires_grad_(requires_grad=False)
    lagrangian = Lagrangian.of(model, ["weight", "bias"])
    lagrangian.update({"bias": torch.zeros(1)})
    assert lagrangian.distance() == pytest.approx(abs(model.bias.item()))


def test_a_parameter_without_gradient_stays_without() -> None:
    model = nn.Linear(1, 1)
    lagrangian = Lagrangian.of(model, ["weight"])
    lagrangian.mu = 1.0
    lagrangian.add_gradient()
    assert model.weight.grad is None


def test_mu_starts_at_zero_grows_and_exceeds_its_cap_once() -> None:
    mu, seen = 0.0, []
    for _ in range(6):
        seen.append(mu)
        mu = next_mu(mu, initial=1.0, multiplier=3.0, cap=10.0)
    assert seen == [0.0, 1.0, 3.0, 9.0, 27.0, 27.0]


@pytest.mark.parametrize(
    ("multipliers", "kinds"), [(True, {"theta", "lambda"}), (False, {"theta"})]
)
def test_the_state_has_multipliers_where_there_are_some(
    multipliers: bool, kinds: set[str]
) -> None:
    lagrangian = Lagrangian.of(nn.Linear(1, 1), ["weight"], multipliers=multipliers)
    assert {key.partition(":")[0] for key in lagrangian.state()} == kinds


def test_what_is_restored_goes_on_as_what_was_kept() -> None:
    model = double_model()
    names = ["0.weight", "2.weight"]
    first, second = Lagrangian.of(model, names), Lagrangian.of(model, names)
    first.mu = 2.0
    first.update({name: torch.ones_like(model.get_parameter(name)) for name in names})
    second.restore({key: one.clone() for key, one in first.state().items()}, first.mu)
    assert second.distance() == first.distance() > 0
    assert second.penalty().item() == first.penalty().item() != 0
