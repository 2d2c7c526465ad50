"""The algorithm keeps the promises of all, and does what its name says."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from nncfx_random.random_sparsity import random_masks

import nncfx
from nncfx.testing import ALGORITHM_PROMISES, AlgorithmSubject

SUBJECT = AlgorithmSubject(
    {"algorithm": "random_sparsity", "params": {"sparsity_target_epoch": 3}}
)


@pytest.mark.parametrize("promise", ALGORITHM_PROMISES, ids=lambda one: one.__name__)
def test_it_keeps_its_promise(promise: Callable[[AlgorithmSubject], None]) -> None:
    promise(SUBJECT)


def test_a_seed_says_which_weights_go() -> None:
    shapes = {"a": (4, 5)}
    masks = [random_masks(shapes, 0.5, seed)["a"] for seed in (1, 1, 2)]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert [int(mask.sum()) for mask in masks] == [10, 10, 10]


def test_a_checkpoint_holds_it(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    config = {"compression": {"algorithm": "random_sparsity", "seed": 3}}
    controller, model = nncfx.create_compressed_model(model, config, torch.ones(1, 8))
    controller.level = 0.5
    nncfx.save(tmp_path / "model.pt", model, controller)
    again, _ = nncfx.load(tmp_path / "model.pt", torch.nn.Sequential(torch.nn.Linear(8, 8)))
    assert again.level == 0.5


def test_a_fault_of_its_config_has_its_place() -> None:
    with pytest.raises(nncfx.errors.ConfigError, match=r"compression\.seed: -1 is out of range"):
        nncfx.NNCFConfig.from_dict({"compression": {"algorithm": "random_sparsity", "seed": -1}})
