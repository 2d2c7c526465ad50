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


def test_scores_that_are_frozen_when_a_checkpoint_is_loaded_are_averaged_once_they_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, network = nncfx.create_compressed_model(nn.Linear(4, 4), CONFIG, torch.ones(1, 4))
    scores = [one for each in network.nncf.hooks for one in each.hook.parameters()]
    for one in scores:
        one.requires_grad_(requires_grad=False)
    monkeypatch.setattr(shared_gradients, "several_processes", lambda: True)
    monkeypatch.setattr(shared_gradients, "has_shards", lambda _: True)
    shared_gradients.average_gradients(network)
    assert not any(one.requires_grad for one in scores)
    reduced: list[torch.Tensor] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", reduced.append)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for one in scores:
        one.requires_grad_()
    sum(one.square().sum() / 2 for one in scores).backward()
    assert len(reduced) == 1
    for one in scores:
        assert torch.equal(one.grad, one / 2)
