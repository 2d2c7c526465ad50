"""Promises of weights that a target only stores in integers."""

import copy
import logging
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nncfx.network import NNCFNetwork
from nncfx.quantization import quantize
from nncfx.quantization.ranges.observation import quantizers_of


class Speaker(nn.Module):
    """A recurrent layer that reads energies, of which some are thousands of times others."""

    def __init__(self, loudest: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.linear = nn.Linear(32, 8)
        # small weights for loud inputs beside large ones for quiet inputs, as training leaves them
        self.loudness: Tensor = torch.logspace(0, math.log10(loudest), 16)
        with torch.no_grad():
            self.lstm.get_parameter("weight_ih_l0").div_(self.loudness)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear(self.lstm(x)[0][:, -1])
        return found

    def inputs(self) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return self.loudness * torch.randn(64, 12, 16, generator=generator)


def quantized_parts(model: NNCFNetwork) -> set[str]:
    """Return the parameters that quantizers of `model` stand at."""
    return {str(site) for site in quantizers_of(model) if str(site).endswith(("l0", "weight"))}


def loss_by_hand(model: Speaker) -> float:
    """Return signal over error of the LSTM's output in dB, its rows rounded to 8 bits by hand."""
    rounded = copy.deepcopy(model.lstm)
    with torch.no_grad():
        for weight in map(rounded.get_parameter, ("weight_ih_l0", "weight_hh_l0")):
            step = weight.abs().amax(1, keepdim=True) / 127
            weight.copy_((weight / step).round() * step)
        exact, found = model.lstm(model.inputs())[0], rounded(model.inputs())[0]
    return float(10 * (exact.square().sum() / (found - exact).square().sum()).log10())


def test_a_recurrent_layer_that_integers_harm_stays_in_float(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Speaker(3000.0).eval()
    assert loss_by_hand(model) < 15
    with caplog.at_level(logging.WARNING):
        network = quantize(model, [model.inputs()])
    assert quantized_parts(network) == {"linear.weight"}
    assert "lstm_0 stays in float: 8 bits would only make its weights smaller" in caplog.text
    exact, found = model(model.inputs()), network(model.inputs())
    assert (found - exact).square().sum() < 1e-3 * exact.square().sum()


@pytest.mark.parametrize(
    ("loudest", "options"),
    [(1.0, {}), (3000.0, {"preset": "fast"}), (3000.0, {"weight_bits": 4})],
    ids=["harmless", "fast", "four bits, as asked for"],
)
def test_other_recurrent_layers_are_stored_in_integers(
    loudest: float, options: dict[str, Any]
) -> None:
    model = Speaker(loudest).eval()
    network = quantize(model, [model.inputs()], **options)
    names = {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "linear.weight"}
    assert quantized_parts(network) == names


def test_a_model_of_which_nothing_else_is_quantized_is_stored_in_integers() -> None:
    model = Speaker(3000.0).eval()
    network = quantize(model.lstm, [model.inputs()])
    assert quantized_parts(network) == {"weight_ih_l0", "weight_hh_l0"}
