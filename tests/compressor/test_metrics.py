"""Metrics on labelled data."""

import pytest
import torch
from torch import nn

from nncfx.compressor.metrics import accuracy
from nncfx.errors import ArgumentError

IDENTITY = nn.Identity()


def test_accuracy_is_the_fraction_of_right_answers_over_unequal_batches() -> None:
    scores = torch.eye(4)
    loader = [(scores[:3], torch.tensor([0, 1, 0])), (scores[3:], torch.tensor([3]))]
    assert accuracy(IDENTITY, loader) == 3 / 4


def test_inputs_may_be_a_mapping_of_keywords() -> None:
    class Sum(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    batch = {"a": torch.tensor([[1.0, 0.0]]), "b": torch.tensor([[0.0, 3.0]])}
    assert accuracy(Sum(), [(batch, torch.tensor([1]))]) == 1.0


@pytest.mark.parametrize("training", [True, False])
def test_the_model_counts_in_eval_mode_and_keeps_its_own(training: bool) -> None:
    model = nn.Dropout(0.999999).train(training)
    assert accuracy(model, [(torch.eye(8), torch.arange(8))]) == 1.0
    assert model.training is training


def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(ArgumentError, match="used up after one pass"):
        accuracy(IDENTITY, iter(()))
