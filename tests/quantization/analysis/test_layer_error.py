"""Errors by tensor and by layer."""

import math

import pytest
import rich
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.quantization.analysis.layer_error import (
    ErrorReport,
    TensorError,
    layer_sensitivities,
    quantization_errors,
)
from nncfx.quantization.quantize import quantize
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.quantization.signal_error import quantizers_by_layer
from nncfx.tracing import PostSite, WeightSite

FIRST, SECOND = "Sequential/Linear[0]/linear_0", "Sequential/Linear[2]/linear_0"


def data() -> Tensor:
    return torch.randn(64, 6, generator=torch.Generator().manual_seed(0))


def network(weight_bits: int = 8) -> NNCFNetwork:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    return quantize(model.eval(), [data()], preset="fast", weight_bits=weight_bits)


def decibels(exact: Tensor, changed: Tensor) -> float:
    ratio = exact.square().sum() / (exact - changed).square().sum()
    return float(10 * torch.log10(ratio.detach()))


def test_a_weight_is_compared_with_what_is_stored() -> None:
    model = network(weight_bits=4)
    stored = dict(model.named_parameters())["0.weight"]
    found = {one.name: one for one in quantization_errors(model, [data()]).tensors}
    assert found["0.weight"].sqnr_db == pytest.approx(
        decibels(stored, model.nncf.weight("0.weight")), rel=1e-4
    )
    assert (found["0.weight"].role, found["0.weight"].bits) == ("weight", 4)


def test_a_layer_is_compared_with_the_model_in_float() -> None:
    model = network(weight_bits=3)
    quantized = model(data())
    model.nncf.remove("quantization")
    exact = model(data())
    labelled = torch.utils.data.DataLoader(list(zip(data(), range(len(data())), strict=True)), 16)
    report = quantization_errors(network(weight_bits=3), labelled)
    (last,) = [one for one in report.tensors if one.name == SECOND]
    assert last.role == "layer"
    assert last.bits is None
    assert last.sqnr_db == pytest.approx(decibels(exact, quantized), rel=1e-4)


def test_each_bit_is_worth_about_six_decibels() -> None:
    by_bits = {
        bits: {
            one.name: one.sqnr_db for one in quantization_errors(network(bits), [data()]).tensors
        }
        for bits in (4, 8)
    }
    gain = by_bits[8]["0.weight"] - by_bits[4]["0.weight"]
    assert gain == pytest.approx(4 * 6.02, abs=4)


def test_a_layer_alone_is_what_its_quantizers_do_to_the_output() -> None:
    model = network(weight_bits=3)
    found = layer_sensitivities(model, [data()])
    assert list(found) == [FIRST, SECOND]
    alone = quantizers_by_layer(model)[SECOND]
    for hook in quantizers_of(model).values():
        hook.is_active = hook in alone
    partly = model(data())
    model.nncf.remove("quantization")
    assert found[SECOND] == pytest.approx(decibels(model(data()), partly), rel=1e-4)


def test_a_layer_has_the_quantizers_of_its_weight_and_its_input() -> None:
    model = network()
    quantizers = quantizers_of(model)
    weight = quantizers[WeightSite("2", "weight")]
    relu = quantizers[PostSite("Sequential/ReLU[1]/relu_0")]
    assert quantizers_by_layer(model)[SECOND] == {weight, relu}


def test_a_recurrent_layer_has_those_of_all_its_matrices() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 8, num_layers=2)
    model = nncfx.quantize(lstm, [torch.randn(5, 2, 4)])
    matrices = {
        quantizers_of(model)[WeightSite("", f"weight_{kind}_l{layer}")]
        for kind in ("ih", "hh")
        for layer in range(2)
    }
    assert quantizers_by_layer(model)["LSTM/lstm_0"] >= matrices
    (found,) = layer_sensitivities(model, [torch.randn(5, 2, 4)]).values()
    assert 20 < found < 60


def test_what_loses_nothing_is_infinitely_exact() -> None:
    model = network()
    for parameter in model.parameters():
        parameter.data.zero_()
    found = {one.name: one.sqnr_db for one in quantization_errors(model, [data()]).tensors}
    assert found["0.weight"] == math.inf


REPORT = ErrorReport(
    (
        TensorError("fc.weight", "weight", 8, 43.21),
        TensorError("Net/Linear[fc]/linear_0", "layer", None, 9.87),
    )
)


def test_printed_a_report_is_a_table_of_text() -> None:
    assert str(REPORT).splitlines() == [
        "tensor                   kind        bits  SQNR dB",
        "fc.weight                weight         8     43.2",
        "Net/Linear[fc]/linear_0  layer                 9.9",
    ]


def test_rich_draws_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    rich.print(REPORT)
    drawn = capsys.readouterr().out
    assert "fc.weight" in drawn
    assert "Net/Linear[fc]/linear_0" in drawn
    assert "43.2" in drawn


def test_the_worst_come_first() -> None:
    assert REPORT.worst(1).tensors == (REPORT.tensors[1],)


@pytest.mark.parametrize("function", [quantization_errors, layer_sensitivities])
def test_no_batches_are_refused(function: type) -> None:
    with pytest.raises(ArgumentError, match="no batches to calibrate with"):
        function(network(), [])


def test_an_attention_product_is_a_layer_of_its_own() -> None:
    class Products(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.matmul(x, x.transpose(0, 1))

    model = quantize(Products(), [data()])
    assert list(quantizers_by_layer(model)) == [
        one for one in nncfx.wrap(Products(), data()).nncf.graph.addresses if "matmul" in one
    ]
