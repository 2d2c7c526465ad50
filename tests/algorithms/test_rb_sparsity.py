"""Regularization-based sparsity: its loss, its gradient, its noise, its end."""

import math

import pytest
import torch
from torch import nn

from nncfx.algorithms.rb_sparsity import (
    LearnedMask,
    RBSparsityController,
    initial_scores,
    threshold,
)
from nncfx.compressor import create_compressed_model


def applied(**item: object) -> RBSparsityController:
    torch.manual_seed(0)
    config = {"compression": {"algorithm": "rb_sparsity"} | item}
    controller, _ = create_compressed_model(nn.Linear(20, 10), config, torch.ones(1, 20))
    assert isinstance(controller, RBSparsityController)
    return controller


def test_the_threshold_is_exact_and_its_gradient_is_the_sigmoids() -> None:
    scores = torch.tensor([-2.0, 0.0, 0.5, 40.0], requires_grad=True)
    mask = threshold(scores)
    assert mask.tolist() == [0, 0, 1, 1]
    mask.sum().backward()
    expected = [math.exp(-s) / (1 + math.exp(-s)) ** 2 for s in (-2.0, 0.0, 0.5, 40.0)]
    torch.testing.assert_close(scores.grad, torch.tensor(expected))


@pytest.mark.parametrize(("level", "loss"), [(0.05, 1.0), (0.1, 4.0), (0.5, 100.0)])
def test_the_loss_is_the_squared_distance_in_twentieths(level: float, loss: float) -> None:
    controller = applied()
    controller.level = level
    assert float(controller.loss().detach()) == pytest.approx(loss, rel=1e-5)


def test_without_a_level_there_is_no_loss() -> None:
    assert float(applied().loss().detach()) == 0


def test_scores_begin_near_a_probability_of_99_percent_and_rank_by_magnitude() -> None:
    weight = torch.tensor([0.1, -1.0, 2.0, 0.9])
    scores = initial_scores(weight)
    assert torch.sigmoid(initial_scores(torch.ones(3)))[0] == pytest.approx(0.99)
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
