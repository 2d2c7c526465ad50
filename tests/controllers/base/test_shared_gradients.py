"""Frozen scores are told of where several processes train whole models, and only there."""

import warnings

import pytest
import torch
from torch import nn

import nncfx
from nncfx.controllers import TrainingLoopWarning
from nncfx.controllers.base import shared_gradients

CONFIG = {
    "compression": {
        "algorithm": "movement_sparsity",
        "params": {
            "warmup_start_epoch": 1,
            "warmup_end_epoch": 2,
            "importance_regularization_factor": 0.1,
            "enable_structured_masking": False,
        },
    }
}


@pytest.mark.parametrize("several", [False, True])
def test_frozen_scores_are_told_of(monkeypatch: pytest.MonkeyPatch, *, several: bool) -> None:
    controller, _ = nncfx.create_compressed_model(nn.Linear(4, 4), CONFIG, torch.ones(1, 4))
    monkeypatch.setattr(shared_gradients, "several_processes", lambda: several)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for epoch in range(4):
            controller.scheduler.epoch_step(epoch)
            controller.scheduler.step()
    texts = [str(one.message) for one in told if one.category is TrainingLoopWarning]
    assert sum("find_unused_parameters=True" in one for one in texts) == several
