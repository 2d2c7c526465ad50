"""Who changes weights behind their ranges is told when they are saved or exported."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx.network import NNCFNetwork
from nncfx.quantization import quantize_weights

X = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))


def dense() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()


def export(path: Path, model: nn.Module) -> None:
    nncfx.export_onnx(model, path, X)


@pytest.mark.parametrize("save", [nncfx.save, nncfx.storage.save, export])
def test_weights_that_an_adapter_was_merged_into_are_named(
    save: Callable[[Path, nn.Module], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = nncfx.quantize(dense(), [X])
    save(tmp_path / "before", model)
    assert "far outside" not in caplog.text
    with torch.no_grad():  # a low-rank update, as large as the weights
        model[0].weight += 0.1 * torch.randn(32, 1) @ torch.randn(1, 32)
    save(tmp_path / "after", model)
    assert "far outside of the ranges of their quantizers, which clip them: '0.weight'." in (
        caplog.text
    )


@pytest.mark.parametrize(
    "quantized",
    [
        lambda model: nncfx.quantize(model, [X], weight_bits=4),
        lambda model: nncfx.quantize(model, [X], weight_bits=2, preset="fast"),
        lambda model: quantize_weights(model, example_inputs=X, bits=4),
        lambda model: quantize_weights(model, example_inputs=X, bits=4, method="hqq"),
        lambda model: quantize_weights(model, [X], bits=4, method="gptq"),
    ],
)
def test_what_ranges_clip_on_purpose_is_not_told(
    quantized: Callable[[nn.Module], NNCFNetwork], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = dense()
    with torch.no_grad():
        model[0].weight[0, 0] = 1.0  # five times the others
    nncfx.save(tmp_path / "m", quantized(model))
    assert "far outside" not in caplog.text


def test_weights_that_grew_in_training_under_learned_ranges_are_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"input_info": {"sample_size": [8, 32]}, "compression": {"algorithm": "quantization"}}
    controller, model = nncfx.create_compressed_model(dense(), config, calibration_batches=[X])
    with torch.no_grad():  # Adam moves entries by the same step, however small a scale's gradient
        model.get_parameter("0.weight").mul_(5)
    done = controller.strip()
    nncfx.save(tmp_path / "m", done, integers=False)
    nncfx.save(tmp_path / "again", nncfx.load(tmp_path / "m", dense())[1])
    assert "far outside" not in caplog.text
