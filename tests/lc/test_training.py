"""Minibatches wrap, wrong settings are refused, and randomness is put back."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.errors import ArgumentError, CompressionError
from nncfx.lc import DC, LC, DCFineTuned, RecoveryData
from nncfx.lc.training import Stepping, minibatches, seeded, train_epoch
from nncfx.schemes import Prune


def test_minibatches_wrap_around() -> None:
    assert list(itertools.islice(minibatches([(1, 2), (3, 4)]), 5)) == [
        *((1, 2), (3, 4)) * 2,
        (1, 2),
    ]


def test_a_generator_that_has_ended_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a generator can be read only once"):
        list(minibatches((i, i) for i in range(2)))


def test_keyword_and_tuple_inputs_reach_the_model() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 1)

        def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            return self.fc(x) * scale

    x, y = torch.ones(3, 2), torch.zeros(3, 1)
    for batch in (((x, 2.0), y), ({"x": x, "scale": 2.0}, y)):
        data = RecoveryData(train=[batch], validate=lambda _: 0.0, criterion=F.mse_loss)
        recipe = LC(steps=2, mb_iterations_per_l=2)
        assert recipe.recover(Scaled(), Prune(), 0.5, data).metric == 0.0


def test_the_mean_loss_is_returned() -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    losses = iter([1.0, 3.0])
    data = RecoveryData(
        train=[],
        validate=lambda _: 0.0,
        criterion=lambda outputs, _: outputs.sum() * 0 + next(losses),
    )
    batch = (torch.ones(1, 1), torch.ones(1, 1))
    still = Stepping(optimizer=optimizer, before_step=lambda: None, after_step=lambda: None)
    mean = train_epoch(model, [batch, batch], data, still)
    assert mean == 2.0


def test_no_minibatches_are_refused() -> None:
    data = RecoveryData(train=[], validate=lambda _: 0.0, criterion=F.mse_loss)
    for recipe in (LC(steps=2), DCFineTuned(epochs=1)):
        with pytest.raises(ArgumentError, match="yields no minibatches"):
            recipe.recover(nn.Linear(2, 2), Prune(), 0.5, data)


def test_the_global_generator_is_put_back() -> None:
    model = nn.Linear(1, 1)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    with seeded(model, 9):
        inside = torch.rand(1)
    assert torch.equal(torch.rand(1), expected)
    torch.manual_seed(9)
    assert torch.equal(torch.rand(1), inside)


def test_an_infinite_loss_says_where() -> None:
    data = RecoveryData(
        train=[(torch.ones(1, 2), torch.ones(1, 2))],
        validate=lambda _: 0.0,
        criterion=lambda outputs, _: outputs.sum() * float("inf"),
    )
    with pytest.raises(CompressionError, match=r"In L-C iteration 1: .*minibatch 0 .*Lower lr"):
        LC(steps=2, lr=0.5).recover(nn.Linear(2, 2), Prune(), 0.5, data)


def test_a_nan_metric_is_refused() -> None:
    data = RecoveryData(train=[], validate=lambda _: float("nan"), criterion=F.mse_loss)
    with pytest.raises(CompressionError, match="validate returned NaN"):
        DC().recover(nn.Linear(2, 2), Prune(), 0.5, data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps is 0; it must be a whole number, at least 1"),
        ({"mb_iterations_first_l": 0}, "mb_iterations_first_l is 0"),
        ({"lr": 0.0}, r"lr is 0\.0; it must be above 0"),
        ({"lr_end": -1.0}, r"lr_end is -1\.0"),
        ({"clip_norm": float("inf")}, "clip_norm is inf"),
        ({"momentum": 1.0}, r"momentum is 1\.0; it lies in \[0, 1\)"),
        ({"weight_decay": -0.1}, r"weight_decay is -0\.1"),
        ({"mu_init": 0.0}, r"mu_init is 0\.0"),
        ({"mu_multiplier": 0.5}, r"mu_multiplier 0\.5"),
        ({"recalibration_batches": -1}, "recalibration_batches is -1"),
        (
            {"optimizer_factory": torch.optim.SGD, "momentum": 0.9},
            "only the built-in optimizer reads",
        ),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LC(**settings)  # type: ignore[arg-type] # settings of several types


@pytest.mark.parametrize("settings", [{"epochs": 0}, {"lr": -1.0}, {"recalibration_batches": -1}])
def test_fine_tuning_refuses_settings_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(settings))):
        DCFineTuned(**settings)  # type: ignore[arg-type] # settings of several types


def test_defaults_are_admissible() -> None:
    assert (LC().steps, DC().seed, DCFineTuned().epochs) == (30, 0, 5)
