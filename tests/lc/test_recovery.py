"""What recovery tells of itself while it runs."""

import copy
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


class Keeps(nn.Module):
    """Keeps what it computed, as models do for an auxiliary loss."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.computed = self.layer(x)
        return self.computed


@pytest.mark.parametrize("method", [LC(steps=2, mb_iterations_per_l=2), DCFineTuned(epochs=2)])
def test_a_model_that_keeps_what_it_computed_recovers_as_another(
    method: LC | DCFineTuned, toy: RecoveryData
) -> None:
    plain = nn.Linear(3, 2)
    keeps = Keeps(copy.deepcopy(plain))
    keeps(next(iter(toy.train))[0])
    expected = method.recover(plain, Prune(), 0.5, toy)
    recovered = method.recover(keeps, Prune(), 0.5, toy)
    assert recovered.metric == expected.metric
    assert torch.equal(recovered.model.layer.weight, expected.model.weight)
