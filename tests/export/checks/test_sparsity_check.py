"""2:4 sparse weights are told where the target computes with their zeros."""

import logging
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import nn

import nncfx
from nncfx.algorithms.nm_sparsity.masks import nm_mask
from nncfx.export import export_onnx
from nncfx.export.checks.sparsity_check import patterned_layers

X = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A convolution, a linear layer with bias (Gemm) and one without (MatMul)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.gemm = nn.Conv2d(4, 8, 3), nn.Linear(8, 8)
        self.matmul = nn.Linear(8, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.conv(x)).mean((2, 3))
        y: torch.Tensor = self.matmul(torch.relu(self.gemm(hidden)))
        return y


def two_of_four(*names: str) -> nn.Module:
    model = Net().eval()
    for name in names:
        weight = model.get_submodule(name).weight.data
        # of every four input channels the first and the third stay, or the two largest
        if weight.ndim == 2:
            weight.mul_(nm_mask(weight, 2, 4))
        else:
            weight[:, 1::2] = 0
    return model


def half_at_random() -> nn.Module:
    model = Net().eval()
    generator = torch.Generator().manual_seed(1)
    for one in (model.conv, model.gemm, model.matmul):
        one.weight.data *= torch.rand(one.weight.shape, generator=generator) < 0.5
    return model


@pytest.mark.parametrize("names", [("conv",), ("gemm",), ("matmul",), ("conv", "gemm", "matmul")])
@pytest.mark.parametrize("bits", [None, 8])
def test_patterned_layers_are_found_in_float_and_in_integers(
    tmp_path: Path, names: tuple[str, ...], bits: int | None
) -> None:
    model = two_of_four(*names)
    made = model if bits is None else nncfx.quantize(model, [X])
    graph = ir.load(export_onnx(made, tmp_path / "m.onnx", X).path).graph
    assert len(patterned_layers(graph)) == len(names)


@pytest.mark.parametrize("model", [Net().eval(), half_at_random()], ids=["dense", "random"])
def test_other_weights_have_no_pattern(tmp_path: Path, model: nn.Module) -> None:
    graph = ir.load(export_onnx(model, tmp_path / "m.onnx", X).path).graph
    assert patterned_layers(graph) == ()


@pytest.mark.parametrize(
    ("target", "is_told"), [("onnxruntime", True), ("openvino", True), ("tensorrt", False)]
)
def test_it_is_told_where_no_kernel_skips_the_zeros(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, target: str, *, is_told: bool
) -> None:
    with caplog.at_level(logging.WARNING, "nncfx.export.checks.sparsity_check"):
        export_onnx(two_of_four("conv", "gemm"), tmp_path / "m.onnx", X, target=target)
    said = [one.message for one in caplog.records if "2:4" in one.message]
    assert len(said) == is_told
    assert all("of 2 layers are 2:4 sparse" in one and target in one for one in said)


def test_weights_of_half_a_byte_are_told_for_a_target_of_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "nncfx.quantization.quantize"):
        nncfx.quantize(Net().eval(), [X], weight_bits=4)
        nncfx.quantize(Net().eval(), [X], weight_bits=8)
    (said,) = [one.message for one in caplog.records if "nothing faster" in one.message]
    assert said.startswith("Weights of 4 bits")
    assert "onnxruntime has no kernels for them and computes with 8 bits" in said
