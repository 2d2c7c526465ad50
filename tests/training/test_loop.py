"""The loop: it trains a compressed model and goes on where it was stopped."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.controllers import Controller
from nncfx.errors import CompressionError, StorageError
from nncfx.training import Recipe, Training, TrainingProgress

RECIPE = Recipe(steps=12, lr=0.05, steps_per_epoch=3, task_weight=0.3, precision="float32")


def controller(target: float = 0.75) -> Controller:
    """Return that of a small network with dropout, masks and a teacher."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(),
        nn.Linear(128, 4),
    )  # fmt: skip
    params = {"sparsity_target": target, "sparsity_target_epoch": 2, "sparsity_freeze_epoch": 3}
    magnitude = {"algorithm": "magnitude_sparsity", "params": params | {"schedule": "cubic"}}
    teacher = {"algorithm": "knowledge_distillation", "type": "softmax", "temperature": 4}
    config = {"compression": [magnitude, teacher]}
    return nncfx.create_compressed_model(model, config, torch.zeros(1, 3, 6, 6))[0]


def batches(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 3, 6, 6, generator=generator), torch.arange(8) % 4


def state(one: Controller) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in one.model.state_dict().items()}


def trained(recipe: Recipe = RECIPE) -> dict[str, Tensor]:
    one = controller()
    torch.manual_seed(5)
    assert Training(one, batches, F.cross_entropy, recipe).run()
    return state(one)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("at", [0, 1, 3, 7, 11])
def test_a_training_stopped_at_any_step_ends_with_the_same_bits(
    tmp_path: Path, at: int, precision: str
) -> None:
    recipe = Recipe(steps=12, lr=0.05, steps_per_epoch=3, precision=precision)  # type: ignore[arg-type]
    one, path = controller(), tmp_path / "t.ckpt"
    torch.manual_seed(5)
    first = Training(one, batches, F.cross_entropy, recipe, path)
    assert not first.run(should_stop=lambda: first.step == at)
    another = controller()
    torch.manual_seed(99)
    second = Training(another, batches, F.cross_entropy, recipe, path)
    assert second.step == at
    assert second.run()
    wanted, found = trained(recipe), state(another)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert another.level == 0.75


def test_it_is_the_loop_that_a_user_would_write() -> None:
    one = controller()
    model = one.model
    torch.manual_seed(5)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    model.train()
    for step in range(12):
        if step % 3 == 0:
            one.scheduler.epoch_step()
        one.scheduler.step()
        optimizer.param_groups[0]["lr"] = RECIPE.learning_rate(step)
        inputs, targets = batches(step)
        loss = 0.3 * F.cross_entropy(model(inputs), targets) + one.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wanted, found = state(one), trained()
    assert all(torch.equal(wanted[name], found[name]) for name in wanted)


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    Training(controller(), batches, F.cross_entropy, RECIPE, tmp_path / "t").run()
    another = controller()
    seen: list[TrainingProgress] = []
    assert Training(another, batches, F.cross_entropy, RECIPE, tmp_path / "t").run(
        on_progress=seen.append
    )
    assert not seen
    assert another.statistics().parts["magnitude_sparsity"].level == pytest.approx(0.75, abs=0.01)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    one = Training(controller(), batches, F.cross_entropy, RECIPE, tmp_path / "file" / "t")
    with pytest.raises(StorageError, match="cannot be written"):
        one.run()
    assert one.step == 0


def test_progress_tells_the_mean_loss_the_level_and_the_step_of_each_epoch() -> None:
    seen: list[TrainingProgress] = []
    losses: list[float] = []
    one = controller()

    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(outputs, targets)
        losses.append(0.3 * float(loss.detach()) + float(one.loss().detach()))
        return loss

    Training(one, batches, criterion, RECIPE).run(on_progress=seen.append)
    assert [one.step for one in seen] == [3, 6, 9, 12]
    means = [sum(losses[n : n + 3]) / 3 for n in (0, 3, 6, 9)]
    assert [one.loss for one in seen] == pytest.approx(means, rel=1e-6)
    # a cubic over two epochs: 0.75 (1 - (1/2)^3) in the middle
    assert [one.level for one in seen] == pytest.approx([0, 0.65625, 0.75, 0.75])
    assert all(one.steps == 12 and one.examples_per_s > 0 for one in seen)


@pytest.mark.parametrize("changed", ["recipe", "config"])
def test_the_checkpoint_of_another_training_is_refused(tmp_path: Path, changed: str) -> None:
    path = tmp_path / "t.ckpt"
    Training(controller(), batches, F.cross_entropy, RECIPE, path).run(should_stop=lambda: True)
    recipe = Recipe(steps=13) if changed == "recipe" else RECIPE
    with pytest.raises(StorageError, match="another training"):
        Training(
            controller(0.5 if changed == "config" else 0.75),
            batches,
            F.cross_entropy,
            recipe,
            path,
        )


def test_a_loss_that_is_not_finite_ends_the_training() -> None:
    training = Training(
        controller(), batches, lambda outputs, _: outputs.sum() * torch.inf, RECIPE
    )
    with pytest.raises(CompressionError, match="Lower lr"):
        training.run()
