"""What a config of sparsity says in vain is told where its scheduler is made."""

from typing import Any

import pytest
import torch
from torch import nn

import nncfx


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({}, ""),
        ({"sparsity_target_epoch": 2, "sparsity_freeze_epoch": 2}, ""),
        (
            {"sparsity_target_epoch": 4, "sparsity_freeze_epoch": 2, "power": 1.0},
            "'sparsity_freeze_epoch' 2 on, at the level 0.25 instead of 0.5",
        ),
        ({"sparsity_freeze_epoch": 0}, "at the level 0 instead of 0.5"),
        (
            {"schedule": "multistep", "sparsity_target": 0.9, "power": 2.0},
            "'multistep', which does not read 'sparsity_target' and 'power'",
        ),
        ({"multistep_steps": [1]}, "'polynomial', which does not read 'multistep_steps'"),
        ({"schedule": "cubic", "sparsity_target": 0.9, "sparsity_target_epoch": 5}, ""),
    ],
)
def test_keys_that_do_nothing_are_told(
    params: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"compression": {"algorithm": "magnitude_sparsity", "params": params}}
    nncfx.create_compressed_model(nn.Linear(4, 4), config, torch.ones(1, 4))
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)
