"""Layers that the traced forward does not call are told."""

import logging

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

import nncfx
from nncfx.quantization.unread_weights import unread_weights

ABOVE = torch.ones(4, 6)


class Branching(nn.Module):
    """Calls one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.above, self.below = nn.Linear(6, 3), nn.Linear(6, 3)

    @override
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.above(x) if x.mean() > 0 else self.below(x)
        return result


def test_a_layer_in_the_other_branch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        nncfx.quantize(Branching(), [ABOVE])
    assert "The traced forward did not read 'below.weight': no quantizer" in caplog.text


def test_tracing_both_branches_as_the_log_says_quantizes_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = nncfx.wrap(Branching(), ABOVE, further_inputs=[-ABOVE])
    with caplog.at_level(logging.WARNING):
        quantized = nncfx.quantize(model, [ABOVE, -ABOVE])
    assert "did not read" not in caplog.text
    assert {"above.weight", "below.weight"} <= {str(one.site) for one in quantized.nncf.hooks}


class Whole(nn.Module):
    """Reads each weight in a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(6, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = nn.LSTMCell(12, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.table = nn.Embedding(5, 6)
        self.norm = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))
        self.tied = nn.Linear(6, 5, bias=False)
        self.tied.weight = self.table.weight

    @override
    def forward(self, x: Tensor) -> Tensor:
        y = self.table(x)
        y = self.recurrent(y)[0]
        y = self.cell(y[:, 0])[0][:, None]
        y = self.attention(y, y, y)[0]
        result: Tensor = self.norm(y) + self.tied(y)
        return result


def test_a_weight_that_is_read_in_any_way_is_not() -> None:
    assert unread_weights(nncfx.wrap(Whole(), torch.zeros(2, 3, dtype=torch.int64))) == ()
