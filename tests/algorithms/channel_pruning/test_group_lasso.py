"""Group lasso: what it measures, what it does in training, and when it ends."""

import pytest
import torch
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import Tensor, nn

import nncfx
from nncfx.controllers import Controller, TrainingLoopWarning
from nncfx.errors import ConfigError
from small_models import Function

WEIGHT = 0.01


def two() -> Function:
    """Two layers that share four channels, behind a norm."""
    return Function(
        lambda m, x: m.second(m.norm(m.first(x)).relu()),
        first=nn.Conv2d(3, 4, 1),
        norm=nn.BatchNorm2d(4),
        second=nn.Conv2d(4, 2, 1),
    )


IMAGE = torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))


def pruned(weight: float = WEIGHT, **params: object) -> tuple[Controller, nn.Module]:
    torch.manual_seed(0)
    item = {
        "algorithm": "filter_pruning",
        "params": {
            "pruning_target": 0.5,
            "pruning_steps": 2,
            "num_init_steps": 1,
            "prune_first_conv": True,
            "align": 1,
            "group_lasso": weight,
            **params,
        },
    }
    return nncfx.create_compressed_model(two(), {"compression": item}, IMAGE)


def norms_of(model: nn.Module) -> Tensor:
    """The norm of each channel's row, bias, scale, shift and column."""
    each = [
        torch.cat(
            [
                model.first.weight[channel].flatten(),
                model.first.bias[channel : channel + 1],  # type: ignore[index]
                model.norm.weight[channel : channel + 1],
                model.norm.bias[channel : channel + 1],
                model.second.weight[:, channel].flatten(),
            ]
        ).norm()
        for channel in range(4)
    ]
    return torch.stack(each)


def test_a_group_is_all_that_carries_the_channel() -> None:
    controller, model = pruned()
    wanted = WEIGHT * norms_of(model).sum()
    gradient = torch.autograd.grad(wanted, list(model.parameters()), allow_unused=True)
    found = controller.loss()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    ours = torch.autograd.grad(found, list(model.parameters()), allow_unused=True)
    for one, other in zip(ours, gradient, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def test_the_loss_ends_when_the_target_is_reached() -> None:
    controller, _ = pruned()
    told = []
    for _ in range(4):
        controller.scheduler.epoch_step()
        told.append((controller.level > 0, controller.loss().item() > 0))
    assert told == [(False, True), (False, True), (True, False), (True, False)]


def test_a_group_of_zeros_has_a_gradient_of_zero() -> None:
    controller, model = pruned()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    loss = controller.loss()
    loss.backward()
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    assert len(gradients) == 5
    assert all(not one.any() for one in gradients)


def test_channels_that_the_task_does_not_need_shrink() -> None:
    def smallest(weight: float) -> float:
        controller, model = pruned(weight)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        controller.scheduler.epoch_step()
        for _ in range(400):
            controller.scheduler.step()
            loss = (model(IMAGE)[:, :1] - IMAGE[:, :1].relu()).square().mean()
            loss = loss + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        norms = norms_of(model).detach()
        return float(norms.min() / norms.max())

    assert smallest(0.05) < 0.2 * smallest(0.0)


def test_of_branches_it_measures_what_goes_with_them_alone() -> None:
    item = {
        "algorithm": "branch_pruning",
        "params": {"pruning_target": 0.3, "group_lasso": WEIGHT},
    }
    controller, model = nncfx.create_compressed_model(
        resnet20_cifar10(), {"compression": item}, torch.zeros(1, 3, 32, 32)
    )
    controller.loss().backward()
    reached = {name for name, one in model.named_parameters() if one.grad is not None}
    # the second convolution of a block reads the branch, and writes to the stream
    assert "features.stage1.unit1.body.conv2.conv.weight" in reached
    assert "features.stage1.unit1.body.conv2.bn.weight" not in reached
    assert not any(name.startswith(("features.init_block", "output")) for name in reached)


def test_a_loop_without_the_loss_is_told() -> None:
    controller, model = pruned()

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for _ in range(3):
            controller.scheduler.epoch_step()
            controller.scheduler.step()
            optimizer.zero_grad()
            model(IMAGE).sum().backward()
            optimizer.step()

    with pytest.warns(TrainingLoopWarning, match=r"loss"):
        train()


def test_layers_that_choose_for_themselves_have_no_groups() -> None:
    with pytest.raises(ConfigError, match=r"group_lasso.*constrained"):
        pruned(constrained=False)
