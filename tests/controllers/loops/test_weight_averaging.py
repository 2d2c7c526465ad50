"""Averages of weights under compression."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import nncfx
from nncfx.controllers import Controller, keep_hooks
from nncfx.errors import ArgumentError, CompressionError, TracingError

ITEMS = {
    "magnitude_sparsity": {"params": {"sparsity_target": 0.5, "sparsity_target_epoch": 2}},
    "rb_sparsity": {"params": {"sparsity_target": 0.5, "sparsity_target_epoch": 2}},
    "nm_sparsity": {},
    "movement_sparsity": {
        "params": {
            "warmup_start_epoch": 0,
            "warmup_end_epoch": 2,
            "importance_regularization_factor": 0.1,
            "enable_structured_masking": False,
        }
    },
    "weight_clustering": {},
    "entropy_constraint": {},
    "lc": {"schemes": [{"name": "Prune"}], "params": {"sparsity_target": 0.5}},
    "quantization": {
        "initializer": {"range": {"num_init_samples": 0}},
        "params": {"activations_quant_start_epoch": 1, "weights_quant_start_epoch": 2},
    },
}
EMA: Any = get_ema_multi_avg_fn(0.6)


def made(algorithm: str) -> tuple[Controller, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    item = {"algorithm": algorithm, **ITEMS[algorithm]}
    return nncfx.create_compressed_model(model, {"compression": item}, torch.ones(2, 8))


def trained(controller: Controller, model: nn.Module, average: AveragedModel) -> None:
    inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.1))
    for _ in range(3):
        controller.scheduler.epoch_step()
        model.train()
        for _ in range(2):
            controller.scheduler.step()
            loss = model(inputs).square().mean() + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)


@pytest.mark.parametrize("uses_buffers", [False, True])
@pytest.mark.parametrize("algorithm", sorted(ITEMS.keys() - {"lc"}))
def test_hooks_of_an_average_are_those_of_the_model(algorithm: str, *, uses_buffers: bool) -> None:
    controller, model = made(algorithm)
    average = AveragedModel(model, multi_avg_fn=EMA, use_buffers=uses_buffers)
    trained(controller, model, average)
    keep_hooks(average.module, model)
    inputs = torch.randn(4, 8)
    # what the average computes is what the model computes with averaged parameters
    weights = dict(average.module.named_parameters())
    norms = {name: one for name, one in average.module.named_buffers() if "running" in name}
    expected: Tensor = torch.func.functional_call(model.eval(), weights | norms, (inputs,))
    found: Tensor = average.module.eval()(inputs)
    assert torch.equal(found, expected)


def test_an_average_of_lc_is_loaded_and_compressed() -> None:
    controller, model = made("lc")
    average = AveragedModel(model, multi_avg_fn=EMA)
    trained(controller, model, average)
    with pytest.raises(ArgumentError, match=r"'0.weight' of 'lc' gives .* controller.compress"):
        keep_hooks(average.module, model)
    weight = average.module.get_parameter("0.weight").detach()
    model.load_state_dict(average.module.state_dict())
    found = controller.strip()[0].weight
    kept = found != 0
    assert 0 < int(kept.sum()) < found.numel()
    assert torch.equal(found[kept], weight[kept])  # as Prune leaves what stays


def test_an_average_removes_as_much_as_the_model() -> None:
    controller, model = made("magnitude_sparsity")
    average = AveragedModel(model, multi_avg_fn=EMA, use_buffers=True)
    trained(controller, model, average)
    keep_hooks(average.module, model)
    weights = [one for one in nncfx.strip(average.module.eval()).parameters() if one.ndim > 1]
    assert sum(int((one == 0).sum()) for one in weights) == (8 * 16 + 16 * 4) // 2


@pytest.mark.parametrize(
    "algorithm",
    ["magnitude_sparsity", "movement_sparsity", "weight_clustering", "entropy_constraint"],
)
def test_averaged_masks_codes_and_grids_are_told(algorithm: str) -> None:
    controller, model = made(algorithm)
    average = AveragedModel(model, multi_avg_fn=EMA, use_buffers=True)
    trained(controller, model, average)
    with pytest.raises(CompressionError, match=r"averaged with the weights.*keep_hooks"):
        average.eval()


def test_codes_that_averaging_truncates_are_told() -> None:
    controller, model = made("weight_clustering")
    controller.scheduler.epoch_step()
    # whole numbers: 0.9 * 7 + 0.1 * 7 is below 7 in float32, and becomes 6
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    for _ in range(20):
        average.update_parameters(model)
    with pytest.raises(CompressionError, match=r"codes of a weight sum to .* averaged"):
        average.eval()


@pytest.mark.parametrize("function", [EMA, None])
def test_an_average_made_before_the_first_epoch_is_sparse_later(
    function: Callable[..., None] | None,
) -> None:
    controller, model = made("rb_sparsity")
    average = AveragedModel(model, multi_avg_fn=function, use_buffers=function is None)
    for mask in controller.masks.values():
        mask.scores.data.sub_(3)
    trained(controller, model, average)
    average.eval()
    weights = [one for one in nncfx.strip(average.module).parameters() if one.ndim > 1]
    assert sum(int((one == 0).sum()) for one in weights) > 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: nn.Linear(8, 16), "carries no hooks"),
        (lambda: made("nm_sparsity")[1], "their hooks differ at"),
    ],
)
def test_an_average_of_something_else_is_told(
    other: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        keep_hooks(other(), made("magnitude_sparsity")[1])


def test_the_ways_that_strip_names_keep_the_average_of_a_quantized_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, 8)
    items = [
        {"algorithm": "magnitude_sparsity", "params": {"sparsity_target_epoch": 0}},
        {"algorithm": "quantization"},
    ]
    controller, model = nncfx.create_compressed_model(
        nn.Sequential(nn.Linear(8, 4)),
        {"compression": items},
        inputs,
        calibration_batches=[inputs],
    )
    controller.scheduler.epoch_step()
    average = AveragedModel(model)
    average.update_parameters(model)
    with torch.no_grad():
        model.get_parameter("0.weight").mul_(-0.3)
    average.update_parameters(model)
    keep_hooks(average.module, model)
    averaged = average.module.eval()
    expected = averaged(inputs)
    with pytest.raises(TracingError) as refused:
        nncfx.strip(averaged)
    for way in ("nncfx.thin(model).model", "nncfx.storage.save", "the average's state_dict"):
        assert way in str(refused.value)
    assert torch.equal(nncfx.thin(averaged).model(inputs), expected)
    path = tmp_path / "average.nncfx"
    nncfx.storage.save(path, averaged)
    back = nncfx.storage.load(path, nn.Sequential(nn.Linear(8, 4)))
    assert torch.equal(back.eval()(inputs), expected)
    model.load_state_dict(averaged.state_dict())
    assert torch.equal(controller.strip().eval()(inputs), expected)
