"""Counts move the controller once each, whatever the loop repeats; Accelerate resumes it."""

from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx.integrations.loop_compression import LoopCompression, compressed_model

CONFIG = {
    "compression": {
        "algorithm": "magnitude_sparsity",
        "params": {
            "schedule": "multistep", "multistep_steps": [1, 2],
            "multistep_sparsity_levels": [0.1, 0.3, 0.6],
        },
    }
}  # fmt: skip


def made() -> tuple[nncfx.controllers.Controller, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return nncfx.create_compressed_model(model, CONFIG, torch.ones(1, 4))


def test_an_epoch_or_a_step_counts_once() -> None:
    controller, model = made()
    compression = LoopCompression(controller)
    levels = []
    for epoch in (0, 1, 1, 2):  # a loop that resumes begins an epoch again
        compression.begin_epoch(epoch, epoch)
        compression.begin_step(epoch)
        model(torch.ones(1, 4)).sum().backward()
        levels.append(round(controller.level, 2))
    assert levels == [0.1, 0.3, 0.3, 0.6]
    assert (controller.scheduler.current_epoch, controller.scheduler.current_step) == (2, 2)
    assert float((compressed_model(controller)[0].weight == 0).float().mean()) > 0.3


def test_accelerate_keeps_a_controller_with_its_model(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")

    def loop(first: int, last: int) -> nncfx.controllers.Controller:
        accelerator = accelerate.Accelerator(cpu=True)
        controller, model = made()
        optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.1))
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.register_for_checkpointing(controller)
        if first:
            accelerator.load_state(str(tmp_path))
        for epoch in range(first, last):
            controller.scheduler.epoch_step()
            for step in range(3):
                controller.scheduler.step()
                x = torch.full((2, 4), float(epoch + step))
                optimizer.zero_grad()
                accelerator.backward(model(x).square().mean() + controller.loss())
                optimizer.step()
        accelerator.save_state(str(tmp_path), safe_serialization=True)
        return controller

    whole = loop(0, 3).strip()
    loop(0, 1)
    resumed = loop(1, 3).strip()
    assert torch.equal(whole[0].weight, resumed[0].weight)
    assert float((whole[2].weight == 0).float().mean()) > 0
