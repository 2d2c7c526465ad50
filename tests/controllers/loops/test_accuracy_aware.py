"""Training by accuracy: where it stops, which level it finds, what it puts back."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.compressor import create_compressed_model
from nncfx.config import AccuracyAwareTraining
from nncfx.controllers import Controller, TrainingTask, train_to_accuracy
from nncfx.errors import ArgumentError

EARLY = {"maximal_absolute_accuracy_degradation": 0.1, "maximal_total_epochs": 8}
ADAPTIVE = {
    "maximal_relative_accuracy_degradation": 10.0,
    "initial_training_phase_epochs": 2,
    "patience_epochs": 1,
    "maximal_total_epochs": 60,
}


def applied(algorithm: str = "magnitude_sparsity") -> Controller:
    params = {"sparsity_target": 0.4, "sparsity_target_epoch": 1}
    item = {"algorithm": algorithm} | ({"params": params} if algorithm[:3] == "mag" else {})
    model = nn.Linear(10, 10)
    return create_compressed_model(model, {"compression": item}, torch.ones(1, 10))[0]


def trained(
    controller: Controller,
    accuracy: Callable[[int, float], float],
    mode: str,
    params: dict[str, Any],
    scale_lr: Callable[[float], object] | None = None,
    *,
    dense_accuracy: float = 1.0,
) -> Any:  # noqa: ANN401 (the result)
    epochs: list[int] = []

    def train_epoch(epoch: int) -> None:
        epochs.append(epoch)
        controller.scheduler.epoch_step()
        with torch.no_grad():
            controller.model.get_parameter("bias").fill_(epoch)

    task = TrainingTask(
        train_epoch=train_epoch,
        validate=lambda: accuracy(epochs[-1], controller.level),
        dense_accuracy=dense_accuracy,
        scale_lr=scale_lr,
    )
    settings = AccuracyAwareTraining.from_dict({"mode": mode, "params": params})
    return train_to_accuracy(controller, settings, task)


class Counting(nn.Linear):
    """Notes in its state how often it was asked for that."""

    calls = 0

    def get_extra_state(self) -> dict[str, int]:
        self.calls += 1
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def test_state_of_any_kind_is_that_of_the_best_epoch() -> None:
    """Extra state that is no tensor ended as an AttributeError."""
    model = nn.Sequential(Counting(10, 10))
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    controller = create_compressed_model(model, config, torch.ones(1, 10))[0]
    layer = controller.model.get_submodule("0")
    task = TrainingTask(
        train_epoch=lambda epoch: setattr(layer, "calls", 10 * epoch),
        validate=lambda: 1.0 - layer.calls / 100,
        dense_accuracy=1.0,
    )
    settings = AccuracyAwareTraining.from_dict({"mode": "early_exit", "params": EARLY})
    train_to_accuracy(controller, settings, task)
    # kept at the end of an epoch, as the first call in it
    assert layer.calls % 10 == 1


def test_early_exit_stops_at_the_first_epoch_within_the_budget() -> None:
    accuracies = [0.95, 0.7, 0.85, 0.92, 1.0]
    result = trained(applied(), lambda epoch, _: accuracies[epoch], "early_exit", EARLY)
    # the first epoch is at level 0, and does not count
    assert len(result.epochs) == 4
    assert result.is_within_budget
    assert (result.level, result.accuracy) == (0.4, 0.92)


def test_early_exit_without_success_puts_the_best_full_epoch_back() -> None:
    controller = applied()
    accuracies = [1.0, 0.5, 0.8, 0.6, 0.1, 0.1, 0.1, 0.1]
    result = trained(controller, lambda epoch, _: accuracies[epoch], "early_exit", EARLY)
    assert len(result.epochs) == 8
    assert not result.is_within_budget
    assert result.accuracy == 0.8
    assert controller.model.get_parameter("bias").eq(2).all()
    assert controller.level == 0.4


@pytest.mark.filterwarnings("ignore:The model was trained for an epoch without:UserWarning")
def test_a_level_that_training_does_not_bring_about_is_not_claimed() -> None:
    item = {
        "algorithm": "rb_sparsity",
        "params": {"sparsity_target": 0.4, "sparsity_target_epoch": 1},
    }
    made = create_compressed_model(nn.Linear(10, 10), {"compression": item}, torch.ones(1, 10))
    result = trained(made[0], lambda *_: 1.0, "early_exit", EARLY)  # its scores never move
    assert (result.level, result.is_within_budget) == (0.0, False)


@pytest.mark.parametrize("found", [None, (0.5, 0.1), torch.ones(2), math.nan])
def test_what_validate_returns_has_to_be_a_number(found: Any) -> None:  # noqa: ANN401 (anything)
    with pytest.raises(ArgumentError, match=r"After epoch 0 validate returned .*; an accuracy is"):
        trained(applied(), lambda *_: found, "early_exit", EARLY)


@pytest.mark.parametrize("highest", [0.25, 0.55, 0.83])
def test_the_adaptive_mode_finds_the_highest_level_that_the_accuracy_allows(
    highest: float,
) -> None:
    controller = applied()

    def accuracy(_: int, level: float) -> float:
        return 0.95 if level <= highest else 0.5

    result = trained(controller, accuracy, "adaptive_compression_level", ADAPTIVE)
    assert result.is_within_budget
    # the smallest step is a fortieth
    assert highest - 0.05 <= result.level <= highest
    assert controller.level == result.level
    assert controller.statistics().to_dict()["level"] == pytest.approx(result.level, abs=0.01)


def test_a_held_schedule_leaves_the_level_alone_afterwards() -> None:
    controller = applied()
    result = trained(
        controller, lambda _, level: 1 - level, "adaptive_compression_level", ADAPTIVE
    )
    controller.scheduler.epoch_step()
    assert controller.level == result.level


def test_each_turn_reduces_the_learning_rate() -> None:
    factors: list[float] = []
    params = ADAPTIVE | {"lr_reduction_factor": 0.25}
    trained(
        applied(),
        lambda _, level: 1.0 if level <= 0.55 else 0.0,
        "adaptive_compression_level",
        params,
        factors.append,
    )
    assert factors
    assert set(factors) == {0.25}


def test_a_learning_rate_that_cannot_be_reduced_is_refused() -> None:
    params = ADAPTIVE | {"lr_reduction_factor": 0.25}
    with pytest.raises(ArgumentError, match="Give TrainingTask a scale_lr"):
        trained(applied(), lambda *_: 1.0, "adaptive_compression_level", params)


def test_an_algorithm_without_a_level_has_none_to_adapt() -> None:
    with pytest.raises(ArgumentError, match="no level that could be adapted"):
        trained(applied("const_sparsity"), lambda *_: 1.0, "adaptive_compression_level", ADAPTIVE)


def test_a_dense_accuracy_that_is_no_number_is_refused() -> None:
    """No epoch would ever be within its budget."""
    with pytest.raises(ArgumentError, match="dense_accuracy is nan; an accuracy is a finite"):
        trained(applied(), lambda *_: 1.0, "early_exit", EARLY, dense_accuracy=math.nan)


@pytest.mark.parametrize(("budget", "dense"), [(1.0, 1.0), (0.5, 0.25)])
def test_a_budget_of_all_of_a_fraction_is_refused(budget: float, dense: float) -> None:
    """One percent, as NNCF's examples write it, let every model do."""
    params = EARLY | {"maximal_absolute_accuracy_degradation": budget}
    with pytest.raises(ArgumentError, match=rf"is {budget}, and .*is {dense:g}, a fraction"):
        trained(applied(), lambda *_: 1.0, "early_exit", params, dense_accuracy=dense)


def test_one_percent_of_an_accuracy_in_percent_is_a_budget() -> None:
    params = EARLY | {"maximal_absolute_accuracy_degradation": 1.0}
    accuracies = [70.0, 68.9, 69.1]
    result = trained(
        applied(), lambda epoch, _: accuracies[epoch], "early_exit", params, dense_accuracy=70.0
    )
    assert (result.accuracy, len(result.epochs)) == (69.1, 3)


def test_accuracies_in_tensors_are_decided_in_numbers() -> None:
    dense: Any = torch.tensor(0.95)
    result = trained(applied(), lambda *_: 0.9, "early_exit", EARLY, dense_accuracy=dense)
    assert result.is_within_budget is True


def test_a_model_better_than_a_negative_dense_metric_is_within_a_relative_budget() -> None:
    params = {"maximal_relative_accuracy_degradation": 5, "maximal_total_epochs": 4}
    result = trained(applied(), lambda *_: -1.38, "early_exit", params, dense_accuracy=-1.40)
    assert result.is_within_budget


def test_steps_of_a_level_that_always_suffices_never_sum_to_all_but_a_rounding_error() -> None:
    controller = applied()
    result = trained(controller, lambda *_: 1.0, "adaptive_compression_level", ADAPTIVE)
    # from the schedule's 0.4 by tenths, and 1 is nothing left
    assert result.level == 0.9
