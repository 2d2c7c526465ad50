"""Regularization-based sparsity: its loss, its gradient, its noise, its end."""

import math
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nncfx.algorithms.rb_sparsity.controller import RBSparsityController
from nncfx.algorithms.rb_sparsity.mask import (
    LearnedMask,
    initial_scores,
    logistic_noise,
    threshold,
)
from nncfx.compressor import create_compressed_model


def applied(**item: object) -> RBSparsityController:
    torch.manual_seed(0)
    config = {"compression": {"algorithm": "rb_sparsity"} | item}
    return create_compressed_model(nn.Linear(20, 10), config, torch.ones(1, 20))[0]


def test_the_threshold_is_exact_and_its_gradient_is_the_sigmoids() -> None:
    scores = torch.tensor([-2.0, 0.0, 0.5, 40.0], requires_grad=True)
    mask = threshold(scores)
    assert mask.tolist() == [0, 0, 1, 1]
    mask.sum().backward()
    expected = [math.exp(-s) / (1 + math.exp(-s)) ** 2 for s in (-2.0, 0.0, 0.5, 40.0)]
    torch.testing.assert_close(scores.grad, torch.tensor(expected))


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits_stay_so_and_scores_learn_in_32(
    dtype: torch.dtype, is_training: bool
) -> None:
    weight = torch.tensor([3.0, -2.0, 1.0], dtype=dtype, requires_grad=True)
    mask = LearnedMask(weight.detach()).train(is_training)
    mask.set_active(is_active=True)
    with torch.no_grad():
        mask.scores.copy_(torch.tensor([40.0, -40.0, 40.0]))  # noise turns none of them
    kept = mask(weight)
    assert (kept.dtype, kept.tolist()) == (dtype, [3, 0, 1])
    kept.sum().backward()
    assert (weight.grad.dtype, weight.grad.tolist()) == (dtype, [1, 0, 1])
    assert mask.scores.grad.dtype is torch.float32


@pytest.mark.parametrize(("level", "loss"), [(0.05, 1.0), (0.1, 4.0), (0.5, 100.0)])
def test_the_loss_is_the_squared_distance_in_twentieths(level: float, loss: float) -> None:
    controller = applied()
    controller.level = level
    assert float(controller.loss().detach()) == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(("mode", "loss"), [("global", 4.0), ("local", 50.0)])
def test_a_level_per_layer_is_the_mean_of_their_losses(mode: str, loss: float) -> None:
    item = {"algorithm": "rb_sparsity", "params": {"sparsity_level_setting_mode": mode}}
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 16))
    controller, _ = create_compressed_model(model, {"compression": item}, torch.ones(1, 4))
    controller.level = 0.5
    first, second = controller.masks.values()
    with torch.no_grad():
        first.scores.fill_(-1.0)  # of 16 weights none stays
        second.scores.fill_(-1.0)
        second.scores.view(-1)[:32].fill_(1.0)  # of 64 a half does
    assert float(controller.loss().detach()) == pytest.approx(loss)


@pytest.mark.filterwarnings("ignore:The masks of rb_sparsity:UserWarning")
def test_the_loss_takes_nncfs_published_values_epoch_by_epoch() -> None:
    params = {
        "schedule": "polynomial",
        "power": 1,
        "sparsity_target": 0.6,
        "sparsity_target_epoch": 2,
        "sparsity_freeze_epoch": 3,
    }
    controller = applied(sparsity_init=0.2, params=params)
    losses = []
    for _ in range(4):
        controller.scheduler.epoch_step()
        losses.append(float(controller.loss().detach()))
    assert losses == pytest.approx([16, 64, 144, 0], abs=1e-3)


def test_without_a_level_there_is_no_loss() -> None:
    assert float(applied().loss().detach()) == 0


def test_scores_begin_at_a_probability_of_at_most_99_percent_and_rank_by_magnitude() -> None:
    weight = torch.tensor([0.1, -1.0, 2.0, 0.9])  # 2 is twice the mean
    scores = initial_scores(weight)
    assert float(torch.sigmoid(scores).max()) == pytest.approx(0.99)
    assert scores.argsort().tolist() == weight.abs().argsort().tolist()
    assert torch.isfinite(initial_scores(torch.zeros(3))).all()


def test_training_keeps_a_weight_as_often_as_its_score_says() -> None:
    hook = LearnedMask(torch.ones(100_000))
    hook.set_active(is_active=True)
    with torch.no_grad():
        hook.scores.fill_(1.0)
    torch.manual_seed(0)
    kept = float(hook.train()(torch.ones(100_000)).detach().mean())
    # four standard deviations of the mean
    assert kept == pytest.approx(1 / (1 + math.exp(-1)), abs=4 * 0.45 / math.sqrt(100_000))
    assert hook.eval()(torch.ones(100_000)).eq(1).all()


def test_the_noise_has_the_logistic_distribution() -> None:
    torch.manual_seed(0)
    count, parts = 400_003, 64
    noise = logistic_noise(torch.zeros(count))
    shares = torch.histc(torch.sigmoid(noise), parts, 0, 1)
    # the sum of squares of 63 free normal numbers lies below 120 but once in 40,000 times
    assert float(((shares - count / parts) ** 2 / (count / parts)).sum()) < 120


def test_neighbours_draw_their_noise_independently() -> None:
    torch.manual_seed(0)
    draws = torch.sigmoid(logistic_noise(torch.zeros(400_000))) - 0.5
    for distance in (1, 2, 3, 4):
        product = draws[distance:] * draws[:-distance] * 12
        # four standard deviations of the mean of products of variance 1
        assert abs(float(product.mean())) < 4 / math.sqrt(400_000)


def test_the_noise_is_of_the_seed_and_of_any_shape_and_dtype() -> None:
    for like in (torch.zeros(3, 5), torch.zeros(1, dtype=torch.float64), torch.zeros(0, 2)):
        drawn = []
        for _ in range(2):
            torch.manual_seed(3)
            drawn.append(logistic_noise(like))
        assert drawn[0].shape == like.shape
        assert drawn[0].dtype == like.dtype
        assert torch.equal(*drawn)


def test_gradients_in_training_are_those_of_the_sigmoid_of_the_noisy_scores() -> None:
    torch.manual_seed(0)
    weight = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(6, 7, dtype=torch.float64)
    hook = LearnedMask(weight.detach()).train()
    hook.set_active(is_active=True)
    with torch.no_grad():
        hook.scores.normal_()
    torch.manual_seed(1)
    noisy = (hook.scores.detach() + logistic_noise(hook.scores.detach())).requires_grad_()
    expected = torch.autograd.grad(weight * threshold(noisy), (weight, noisy), upstream)
    torch.manual_seed(1)
    found = torch.autograd.grad(hook(weight), (weight, hook.scores), upstream)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_inactive_mask_keeps_every_bit_and_gives_its_scores_zeros(dtype: torch.dtype) -> None:
    weight = torch.tensor([[-0.0, 0.0, math.inf], [-1.5, 2.0, 1e-30]], dtype=dtype)
    hook = LearnedMask(torch.ones(2, 3)).train()
    given = weight.clone().requires_grad_()
    found = hook(given)
    assert found.dtype == dtype
    assert torch.equal(found.signbit(), weight.signbit())
    assert torch.equal(found, weight)
    given = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    upstream = torch.arange(-2.0, 4.0).view(2, 3).to(dtype)
    of_weight, of_scores = torch.autograd.grad(hook(given), (given, hook.scores), upstream)
    assert torch.equal(of_weight, upstream)
    assert torch.equal(of_scores, torch.zeros(2, 3))


@pytest.mark.filterwarnings("ignore:The masks of rb_sparsity:UserWarning")
def test_distributed_data_parallel_trains_from_level_zero_beyond_the_freeze(
    tmp_path: Path,
) -> None:
    params = {"sparsity_target": 0.6, "sparsity_target_epoch": 1, "sparsity_freeze_epoch": 2}
    controller = applied(sparsity_init=0.0, params=params)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    try:
        # as docs/past_one_machine.md has it
        model = DistributedDataParallel(controller.model, find_unused_parameters=True)
        for _ in range(4):
            controller.scheduler.epoch_step()
            for _ in range(2):
                (model(torch.randn(4, 20)).sum() + controller.loss()).backward()
        del model  # its reducer may wait for ever for a group that is gone
    finally:
        dist.destroy_process_group()
    assert controller.target_level == pytest.approx(0.6)


def test_the_gradient_of_the_loss_is_that_of_the_threshold() -> None:
    controller = applied(sparsity_init=0.3)
    (mask,) = controller.masks.values()
    with torch.no_grad():
        mask.scores.normal_()
    (found,) = torch.autograd.grad(controller.loss(), [mask.scores])
    kept = threshold(mask.scores).sum() / mask.scores.numel()
    (expected,) = torch.autograd.grad(((kept - 0.7) / 0.05) ** 2, [mask.scores])
    torch.testing.assert_close(found, expected)


def test_a_loaded_mask_is_as_active_and_as_noisy_as_the_saved_one() -> None:
    saved, loaded = LearnedMask(torch.ones(2, 2)), LearnedMask(torch.ones(2, 2))
    saved.set_active(is_active=True)
    saved.freeze()
    loaded.load_state_dict(saved.state_dict())
    assert (loaded.is_active, loaded.is_noisy) == (True, False)


@pytest.mark.parametrize(("removed", "is_told"), [(40, True), (80, False)])
def test_masks_that_freeze_far_below_the_level_are_told(removed: int, is_told: bool) -> None:
    params = {"sparsity_target": 0.4, "sparsity_target_epoch": 0, "sparsity_freeze_epoch": 0}
    controller = applied(params=params)
    (mask,) = controller.masks.values()
    assert mask.scores.numel() == 200  # 40 of them are 0.2, 80 are 0.4
    with torch.no_grad():
        mask.scores.view(-1)[:removed] = -1.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        controller.scheduler.epoch_step()
    told = [str(one.message) for one in caught if "are frozen" in str(one.message)]
    assert bool(told) == is_told
    assert all("20% of the weights instead of 40%" in one for one in told)


@pytest.mark.parametrize("removed", [75, 90])
@pytest.mark.parametrize("mode", ["global", "local"])
def test_masks_freeze_at_the_level_asked_by_the_order_of_their_scores(
    mode: str, removed: int
) -> None:
    params = {
        "sparsity_target": 0.4,
        "sparsity_target_epoch": 0,
        "sparsity_freeze_epoch": 0,
        "sparsity_level_setting_mode": mode,
    }
    controller = applied(params=params)
    (mask,) = controller.masks.values()
    scores = torch.arange(200.0) - removed + 0.5  # below 0: as many as `removed`
    with torch.no_grad():
        mask.scores.copy_(scores[torch.randperm(200)].view_as(mask.scores))
    largest = mask.scores.detach() > 80 - removed  # 0.4 of 200 are 80
    controller.scheduler.epoch_step()
    assert torch.equal(mask.scores > 0, largest)
    assert controller.statistics().level == pytest.approx(0.4)


def test_level_and_stage_are_what_holds_not_what_was_asked_for() -> None:
    params = {"sparsity_target": 0.4, "sparsity_target_epoch": 0}
    controller = applied(sparsity_init=0.1, params=params)
    (mask,) = controller.masks.values()
    controller.scheduler.epoch_step()
    told = []
    for removed in (0, 40, 72, 80):  # of 200 weights
        with torch.no_grad():
            mask.scores.view(-1)[:removed] = -1.0
        told.append((controller.level, controller.compression_stage().name))
    assert told == [
        (0.0, "UNCOMPRESSED"),
        (0.2, "PARTIALLY_COMPRESSED"),
        (0.36, "FULLY_COMPRESSED"),  # within 0.05
        (0.4, "FULLY_COMPRESSED"),
    ]
    assert controller.target_level == 0.4


@pytest.mark.filterwarnings("ignore:The masks of rb_sparsity:UserWarning")
def test_from_the_freeze_epoch_on_nothing_moves_the_scores() -> None:
    controller = applied(sparsity_init=0.3, params={"sparsity_freeze_epoch": 1})
    (mask,) = controller.masks.values()
    optimizer = torch.optim.SGD(controller.model.parameters(), lr=1.0, momentum=0.9)
    moved = []
    for _ in range(3):
        controller.scheduler.epoch_step()
        before = mask.scores.detach().clone()
        loss = controller.model(torch.randn(4, 20)).sum() + controller.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        moved.append(not torch.equal(mask.scores, before))
    assert moved == [True, False, False]


def test_two_modules_that_share_a_weight_share_its_scores() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    item = {"algorithm": "rb_sparsity"}
    controller, _ = create_compressed_model(Tied(), {"compression": item}, torch.ones(1, 4))
    assert [len(group["params"]) for group in controller.parameter_groups(lr=1.0)] == [3, 1]
