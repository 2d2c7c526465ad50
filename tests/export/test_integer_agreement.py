"""On a trained network ONNX Runtime's integers are those of the simulation."""

import importlib
import os
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import nncfx
from nncfx.export import export_onnx
from nncfx.quantization import integer_arithmetic

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
DATA = Path(os.environ.get("NNCFX_DATA", "../shared/data"))


@pytest.fixture
def agreement(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("integer_agreement")


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no trained weights at {DATA}; set NNCFX_DATA")
def test_each_kernel_returns_the_simulations_integers_to_one_step(
    agreement: ModuleType, tmp_path: Path
) -> None:
    model, images = agreement.subject("resnet20-A", DATA)
    file = export_onnx(model, tmp_path / "int8.onnx", images).path
    executed = agreement.executed_integers(file, images)
    found = agreement.agreements(model, executed, images, is_local=True)
    # 19 convolutions, 9 sums and the pooling, with the image
    assert len(found) == 30
    assert max(one.steps for one in found.values()) <= 1
    assert sum(one.differing for one in found.values()) < 1e-3 * sum(
        one.elements for one in found.values()
    )


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no trained weights at {DATA}; set NNCFX_DATA")
def test_the_whole_network_in_integers_differs_in_no_element(
    agreement: ModuleType, tmp_path: Path
) -> None:
    model, images = agreement.subject("resnet20-A", DATA)
    file = export_onnx(model, tmp_path / "int8.onnx", images).path
    executed = agreement.executed_integers(file, images)
    with integer_arithmetic(model):
        found = agreement.agreements(model, executed, images, is_local=False)
    assert len(found) == 30
    assert all(one.differing == 0 for one in found.values())


def test_a_weight_computed_in_the_forward_is_no_activation(agreement: ModuleType) -> None:
    class Centred(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Centred(8, 8), nn.ReLU(), nn.Linear(8, 4))
    x = torch.randn(4, 8)
    quantized = nncfx.quantize(model.eval(), [x])
    found = agreement.measured(quantized, (x,))["local, integers"]
    assert {str(one) for one in found} == {
        "Sequential/Linear[0]/linear_0|INPUT0",
        "Sequential/ReLU[1]/relu_0|OUTPUT0",
        "Sequential/ReLU[3]/relu_0|OUTPUT0",
    }
    assert all(one.differing == 0 for one in found.values())
