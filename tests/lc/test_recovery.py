"""What recovery tells of itself while it runs."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.lc import DC, LC, DCFineTuned, Recovery, RecoveryData
from nncfx.schemes import Prune

BATCHES = [(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))] * 2


def told(recovery: Recovery) -> list[str]:
    texts: list[str] = []
    data = RecoveryData(
        train=BATCHES, validate=lambda _: 1.0, criterion=F.cross_entropy, progress=texts.append
    )
    recovery.recover(nn.Linear(3, 2), Prune(), 0.5, data)
    return texts


def test_lc_tells_step_and_minibatch() -> None:
    assert told(LC(steps=2, mb_iterations_per_l=2)) == [
        "L-C: judging",
        "L-C step 1 of 1: minibatch 1",
        "L-C step 1 of 1: minibatch 2",
        "L-C step 1 of 1: judging",
    ]


def test_fine_tuning_tells_epoch_and_minibatch() -> None:
    assert told(DCFineTuned(epochs=1)) == [
        "judging",
        "epoch 1 of 1: minibatch 1",
        "epoch 1 of 1: minibatch 2",
        "epoch 1 of 1: judging",
    ]


def test_direct_compression_tells_that_it_judges() -> None:
    assert told(DC()) == ["judging"]


@pytest.mark.parametrize("method", [LC(steps=5, mb_iterations_per_l=1), DCFineTuned(epochs=4)])
def test_a_stop_ends_recovery_with_the_best_until_then(
    method: LC | DCFineTuned, toy: RecoveryData
) -> None:
    stopping = replace(toy, stop=lambda steps: len(steps) == 3)
    stopped = method.recover(nn.Linear(3, 2), Prune(), 0.5, stopping)
    assert [record.step for record in stopped.history] == [0, 1, 2]
    assert stopped.metric == max(record.metric for record in stopped.history)
