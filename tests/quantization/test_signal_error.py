"""Layers that return little more than their error are named."""

import math

import pytest
import torch
from torch import nn

from nncfx.quantization import quantization_errors, quantize
from nncfx.quantization.signal_error import Energies, warn_large_errors
from small_models import Function


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()


def data() -> torch.Tensor:
    return torch.randn(64, 16, generator=torch.Generator().manual_seed(0))


def test_a_tenth_of_the_amplitude_is_twenty_decibels() -> None:
    energies = Energies()
    energies.add(torch.ones(4), torch.full((4,), 1.1))
    assert energies.sqnr_db == pytest.approx(20, abs=1e-4)
    assert Energies().sqnr_db == math.inf


def test_a_complex_number_counts_by_its_magnitude() -> None:
    energies = Energies()
    energies.add(torch.tensor([3 + 4j]), torch.tensor([3 + 4.5j]))
    assert energies.sqnr_db == pytest.approx(20)


def test_outputs_of_other_shapes_are_not_compared() -> None:
    """An expert of a mixture may get other tokens when its router is quantized."""
    energies = Energies()
    for output in (torch.ones(6), torch.ones(5), torch.ones(4), torch.full((4,), 1.1)):
        energies.note(output)
    assert energies.sqnr_db == pytest.approx(20, abs=1e-4)


def test_a_network_that_multiplies_in_the_domain_of_frequencies_is_quantized() -> None:
    """Fourier neural operators do."""
    model = Function(
        lambda m, x: m.project(
            torch.fft.irfft(torch.einsum("bf,fg->bg", torch.fft.rfft(m.lift(x)), m.spectrum))
        ),
        lift=nn.Linear(16, 16),
        project=nn.Linear(16, 4),
        spectrum=nn.Parameter(torch.randn(9, 9, dtype=torch.complex64)),
    ).eval()
    quantized = quantize(model, [data()])
    assert (quantized(data()) - model(data())).norm() < 0.05 * model(data()).norm()


def test_layers_of_two_bits_are_named_and_those_of_eight_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quantize(network(), [data()])
    assert "signal over error" not in caplog.text
    quantize(network(), [data()], weight_bits=2)
    assert "1 of 2 layers return less than 10 dB of signal over error" in caplog.text
    assert "Sequential/Linear[2]/linear_0 (9" in caplog.text
    assert "more bits, preset='thorough' or ignored_scopes help" in caplog.text


def test_a_preset_that_would_change_nothing_is_not_advised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quantize(network(), [data()], activation_bits=2)  # weights of 8 bits are learned in no preset
    assert "more bits or ignored_scopes help" in caplog.text


def test_the_weights_before_they_were_rounded_are_what_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = quantize(network(), [data()], weight_bits=2)
    caplog.clear()
    warn_large_errors(model, data(), {})
    assert not caplog.text
    values = {name: one.detach() for name, one in network().named_parameters()}
    warn_large_errors(model, data(), values)
    assert "signal over error" in caplog.text


def test_a_reference_shows_the_error_of_rounding_in_place() -> None:
    model = quantize(network(), [data()], weight_bits=4)
    alone, against = (
        {
            one.name: one.sqnr_db
            for one in quantization_errors(model, [data()], reference=one).tensors
        }
        for one in (None, network())
    )
    assert alone["0.weight"] == math.inf
    assert 10 < against["0.weight"] < 30


def test_what_correcting_biases_fixes_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The number is that of the outputs, which are the last layer's, against the float model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
    x = torch.rand(64) + torch.rand(8, 64) * 1e-3
    with torch.no_grad():  # terms that nearly cancel
        mean = model[:2](x).mean(0)
        model[2].bias.zero_()
        model[2].weight -= mean * (model[2].weight @ mean) / (mean @ mean)
        quantized = quantize(model, [x])
        exact, error = model(x), model(x) - quantized(x)
    decibels = 10 * math.log10(float(exact.square().sum() / error.square().sum()))
    assert f"Linear[2]/linear_0 ({decibels:.1f} dB)" in caplog.text


def test_a_layer_that_begins_with_zeros_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    """As those that ControlNet adds: it returns 0, and decibels of 0 say nothing."""
    torch.manual_seed(0)
    model = Function(
        lambda m, x: m.last((y := torch.relu(m.first(x))) + m.zero(y)),
        first=nn.Linear(16, 16),
        zero=nn.Linear(16, 16),
        last=nn.Linear(16, 4),
    )
    nn.init.zeros_(model.zero.weight)
    nn.init.zeros_(model.zero.bias)
    with pytest.warns(UserWarning, match="begins with weights of 0, nothing is wrong"):
        quantize(model.eval(), [data()])
    assert "signal over error" not in caplog.text
