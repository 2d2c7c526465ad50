"""ADMM is the textbook's iteration, and retraining follows it."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.errors import ArgumentError
from nncfx.lc import ADMM, DC, RecoveryData
from nncfx.schemes import Compose, Prune, Quantize


def projected(matrix: torch.Tensor) -> torch.Tensor:
    """The half of the entries of largest magnitude."""
    found = torch.zeros_like(matrix)
    kept = matrix.abs().flatten().topk(matrix.numel() // 2).indices
    found.view(-1)[kept] = matrix.flatten()[kept]
    return found


def test_the_iterates_are_those_of_scaled_admm_written_out() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False)
    inputs, targets = torch.randn(8, 3), torch.randn(8, 2)
    seen: list[torch.Tensor] = []

    def validate(candidate: nn.Module) -> float:
        seen.append(candidate.get_parameter("weight").detach().clone())
        return 0.0

    data = RecoveryData(train=[(inputs, targets)], validate=validate, criterion=F.mse_loss)
    rho, lr = 0.3, 0.1
    recipe = ADMM(iterations=4, rho=rho, lr=lr, mb_iterations=5, momentum=0.0)
    recipe.recover(model, Prune(), 0.5, data)

    w = model.weight.detach().clone()
    z, u = projected(w), torch.zeros_like(w)
    expected = [z]
    for _ in range(4):
        for _ in range(5):
            w.requires_grad_()
            loss = F.mse_loss(inputs @ w.T, targets) + rho / 2 * (w - z + u).square().sum()
            (gradient,) = torch.autograd.grad(loss, w)
            w = (w - lr * gradient).detach()
        z = projected(w + u)
        u = u + w - z
        expected.append(z)
    for ours, theirs in zip(seen, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_retraining_holds_the_zeros_and_the_best_of_all_is_returned(
    dense: nn.Module, digits: RecoveryData
) -> None:
    scheme = Compose([Prune(), Quantize("float16")])
    recipe = ADMM(
        iterations=6,
        rho=3e-2,
        lr=0.1,
        lr_end=0.01,
        mb_iterations=30,
        retraining_epochs=4,
        recalibration_batches=5,
    )
    result = recipe.recover(dense, scheme, 0.9, digits)
    direct = DC(recalibration_batches=5).recover(dense, scheme, 0.9, digits)
    assert [record.step for record in result.history] == list(range(11))
    assert result.metric == max(record.metric for record in result.history)
    assert result.metric > direct.metric + 0.05
    weights = [p for p in result.model.parameters() if p.ndim == 2]
    total = sum(w.numel() for w in weights)
    assert sum(int(w.count_nonzero()) for w in weights) <= int(0.1 * total)


def test_without_retraining_only_the_iterations_are_recorded(toy: RecoveryData) -> None:
    history = (
        ADMM(iterations=2, mb_iterations=2).recover(nn.Linear(3, 2), Prune(), 0.5, toy).history
    )
    assert [record.mu for record in history] == [0.0, 1e-2, 1e-2]


def test_the_users_model_is_left_as_it_was(toy: RecoveryData) -> None:
    model = nn.Linear(3, 2)
    before = copy.deepcopy(model)
    ADMM(iterations=1, mb_iterations=2, retraining_epochs=1).recover(model, Prune(), 0.5, toy)
    assert torch.equal(model.weight, before.weight)


@pytest.mark.parametrize(
    "wrong", [{"iterations": 0}, {"rho": 0.0}, {"retraining_epochs": -1}, {"lr": 0.0}]
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        ADMM(**wrong)  # type: ignore[arg-type] # wrong on purpose
