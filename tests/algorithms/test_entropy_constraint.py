"""Training under an entropy constraint: bits as asked for, and a loss that is worth it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.controllers import Controller
from nncfx.errors import ConfigError

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(512, 32, generator=GENERATOR)
LABELS = (INPUTS[:, :8].sum(1) > 0).long() + 2 * (INPUTS[:, 8:16].sum(1) > 0).long()


def created(**item: object) -> tuple[Controller, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    config = {"compression": {"algorithm": "entropy_constraint", **item}}
    return nncfx.create_compressed_model(model, config, INPUTS[:2])


def trained(controller: Controller, model: nn.Module, epochs: int) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss = torch.zeros(())
    for _ in range(epochs):
        controller.scheduler.epoch_step()
        for start in range(0, len(INPUTS), 64):
            controller.scheduler.step()
            loss = F.cross_entropy(model(INPUTS[start : start + 64]), LABELS[start : start + 64])
            optimizer.zero_grad()
            (loss + controller.loss()).backward()
            optimizer.step()
    return float(loss.detach())


def test_bits_fall_to_the_target_and_the_weights_are_on_grids() -> None:
    controller, _ = created(bits=0.8, params={"bits_init": 4.0, "target_epoch": 4})
    seen = []
    for _ in range(6):
        controller.scheduler.epoch_step()
        seen.append(controller.statistics().bits)
    assert seen[0] == pytest.approx(4.0, rel=0.02)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == pytest.approx(0.8, rel=0.02)
    weight = controller.strip()[0].weight.detach()
    step = controller.hooks["0.weight"].step
    assert torch.equal((weight / step).round() * step, weight)
    assert controller.statistics().layers[0].nonzero == weight.count_nonzero()
    assert "all" in str(controller.statistics())


def test_training_recovers_at_few_bits() -> None:
    controller, model = created(bits=0.8, params={"bits_init": 3.0, "target_epoch": 8})
    loss = trained(controller, model, 20)
    assert loss < 0.25  # of log(4) = 1.39 before
    controller.level = controller.level  # grids of the weights as they are now
    right = (controller.strip().eval()(INPUTS).argmax(1) == LABELS).float().mean()
    assert right > 0.9


def test_the_loss_makes_the_same_grid_cheaper() -> None:
    bits = []
    for rate in (0.0, 0.3):
        controller, model = created(
            bits=2.0, rate=rate, params={"bits_init": 2.0, "target_epoch": 0, "freeze_epoch": 0}
        )
        trained(controller, model, 6)
        bits.append(controller.statistics().bits)
    assert bits[1] < 0.8 * bits[0]


def test_the_loss_is_the_code_length_per_weight_times_the_rate() -> None:
    controller, _ = created(bits=2.0, rate=0.5)
    assert controller.loss() == 0
    controller.level = 1 - 2 / 32
    lengths = [
        hook.grid.code_length(controller.model.get_parameter(name).detach())
        for name, hook in controller.hooks.items()
    ]
    torch.testing.assert_close(controller.loss().detach(), 0.5 * sum(lengths) / (32 * 64 + 256))


def test_bits_that_rise_are_a_fault_of_the_config() -> None:
    with pytest.raises(ConfigError, match=r"bits_init: is 1, below bits \(2\)"):
        created(bits=2.0, params={"bits_init": 1.0})
