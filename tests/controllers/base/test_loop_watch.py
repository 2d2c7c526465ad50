"""What a training loop leaves out is told once, and nothing else is."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nncfx
from nncfx.controllers import Controller, TrainingLoopWarning


def created(item: dict[str, Any]) -> tuple[Controller, nn.Module]:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return nncfx.create_compressed_model(model, {"compression": item}, torch.ones(1, 4))


def train(
    controller: Controller, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int
) -> None:
    for _ in range(steps):
        controller.scheduler.step()
        loss = model(torch.ones(3, 4)).square().sum() + controller.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def test_epoch_step_left_out_in_later_epochs_is_told_once() -> None:
    controller, model = created({"algorithm": "magnitude_sparsity"})
    controller.scheduler.epoch_step()
    train(controller, model, sgd(model), 4)
    controller.scheduler.epoch_step()
    train(controller, model, sgd(model), 8)  # without a warning, which would be an error
    with pytest.warns(TrainingLoopWarning, match="more than 8 steps, twice as many as") as caught:
        train(controller, model, sgd(model), 9)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_epochs_of_unlike_length_get_no_warning() -> None:
    controller, model = created({"algorithm": "magnitude_sparsity"})
    for steps in (3, 6, 1, 12):  # without a warning, which would be an error
        controller.scheduler.epoch_step()
        train(controller, model, sgd(model), steps)


def test_a_multiplier_that_no_optimizer_knows_of_is_told_once() -> None:
    controller, model = created({"algorithm": "rb_sparsity", "compression_lr_multiplier": 5})
    controller.scheduler.epoch_step()
    with pytest.warns(TrainingLoopWarning, match="learning rate of 'rb_sparsity'") as caught:
        train(controller, model, sgd(model), 4)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("algorithm", ["rb_sparsity", "magnitude_sparsity"])
def test_a_multiplier_that_is_used_or_has_nothing_to_multiply_gets_no_warning(
    algorithm: str,
) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    config = {"compression_lr_multiplier": 5, "compression": {"algorithm": algorithm}}
    controller, model = nncfx.create_compressed_model(model, config, torch.ones(1, 4))
    optimizer = sgd(model)
    if algorithm == "rb_sparsity":
        optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.01))
    controller.scheduler.epoch_step()  # without a warning, which would be an error
    train(controller, model, optimizer, 3)


def test_epoch_step_called_once_for_all_epochs_is_told_when_stripped() -> None:
    controller, model = created({"algorithm": "magnitude_sparsity"})
    controller.scheduler.epoch_step()
    train(controller, model, sgd(model), 9)
    with pytest.warns(
        TrainingLoopWarning, match=r"once in 9 steps.*is 0, and would be 0.5"
    ) as all_:
        controller.strip()
    assert all_[0].filename == __file__
    controller.strip()  # without a warning, which would be an error


def test_a_loop_without_any_call_is_told_when_its_model_is_stripped() -> None:
    controller, model = created({"algorithm": "magnitude_sparsity"})
    optimizer = sgd(model)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()
    with pytest.warns(
        TrainingLoopWarning, match=r"never called: the level is 0, and would be 0.5"
    ):
        controller.strip()


def test_weights_that_are_loaded_are_no_training() -> None:
    controller, model = created({"algorithm": "magnitude_sparsity"})
    model.load_state_dict(model.state_dict())
    controller.strip()  # without a warning, which would be an error


def test_a_model_that_was_made_in_inference_mode_is_saved(tmp_path: Path) -> None:
    with torch.inference_mode():
        model = nncfx.quantize(nn.Sequential(nn.Linear(4, 2)), [torch.ones(2, 4)])
    assert nncfx.save(tmp_path / "x.nncfx", model).exists()


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_schedule_at_its_end_or_further_on_is_stripped_without_a_warning(epochs: int) -> None:
    params = {"sparsity_target_epoch": 2 * (epochs - 1)}
    controller, model = created({"algorithm": "magnitude_sparsity", "params": params})
    for _ in range(epochs):
        controller.scheduler.epoch_step()
        train(controller, model, sgd(model), 3)
    controller.strip()  # without a warning, which would be an error


def test_scores_that_are_frozen_are_no_training() -> None:
    params = {
        "warmup_start_epoch": 0,
        "warmup_end_epoch": 2,
        "importance_regularization_factor": 0.1,
        "enable_structured_masking": False,
    }
    controller, model = created({"algorithm": "movement_sparsity", "params": params})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            controller.scheduler.epoch_step()
            controller.scheduler.epoch_step()
            train(controller, model, sgd(model), 3)
    assert ["called twice" in str(one.message) for one in caught] == [True]


LEARNING = [
    {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 0}}},
    {
        "algorithm": "movement_sparsity",
        "params": {
            "warmup_start_epoch": 1,
            "warmup_end_epoch": 3,
            "importance_regularization_factor": 1.0,
            "enable_structured_masking": False,
        },
    },
]
learning = pytest.mark.parametrize("item", LEARNING, ids=[one["algorithm"] for one in LEARNING])


@learning
def test_an_optimizer_that_was_made_before_is_told_of_once(item: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    early = sgd(model)
    controller, model = nncfx.create_compressed_model(
        model, {"compression": item}, torch.ones(1, 4)
    )
    controller.scheduler.epoch_step()
    train(controller, model, early, 3)
    match = f"no parameter of '{item['algorithm']}' was changed.*after create_compressed_model"
    with pytest.warns(TrainingLoopWarning, match=match) as caught:
        controller.scheduler.epoch_step()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    train(controller, model, early, 3)  # without a warning, which would be an error
    controller.scheduler.epoch_step()


@pytest.mark.parametrize("set_to_none", [True, False])
@learning
def test_an_optimizer_that_holds_all_parameters_gets_no_warning(
    item: dict[str, Any], set_to_none: bool
) -> None:
    controller, model = created(item)
    optimizer = sgd(model)
    for _ in range(3):  # without a warning, which would be an error
        controller.scheduler.epoch_step()
        train(controller, model, optimizer, 2)
        optimizer.zero_grad(set_to_none=set_to_none)
