"""A first convolution on blocks of pixels computes what it computed on pixels."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from nncfx.export import export_onnx
from nncfx.export.passes.strides import blocks_as_channels
from onnx_files import run_file
from small_models import Rounding


@given(size=st.integers(1, 7), pad=st.integers(0, 3), half=st.integers(4, 6))
def test_sums_are_the_same(size: int, pad: int, half: int) -> None:
    generator = torch.Generator().manual_seed(size + 10 * pad)
    image = torch.randint(0, 9, (1, 3, 2 * half, 2 * half), generator=generator).double()
    kernel = torch.randint(-9, 9, (2, 3, size, size), generator=generator)
    expected = F.conv2d(image, kernel.double(), stride=2, padding=pad)
    blocks = image.reshape(1, 3, half, 2, half, 2).permute(0, 3, 5, 1, 2, 4)
    rearranged = torch.from_numpy(blocks_as_channels(kernel.numpy(), pad)).double()
    before = -(-pad // 2)
    padded = F.pad(blocks.reshape(1, 12, half, half), (before, before + 4, before, before + 4))
    found = F.conv2d(padded, rearranged)[..., : expected.shape[2], : expected.shape[3]]
    assert torch.equal(found, expected)


class Stem(nn.Module):
    """A quantized first convolution as image networks have it."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, kernel, stride=2, padding=kernel // 2)
        scale = self.conv.weight.detach().abs().amax((1, 2, 3)) / 127
        self.weight_q = Rounding(scale, (-127, 127), axis=0)
        self.input_q = Rounding(0.02, (0, 255), zero_point=128)
        self.output_q = Rounding(0.02, (0, 255), zero_point=128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight_q(self.conv.weight)
        padding = self.conv.padding
        y = F.conv2d(self.input_q(x), weight, self.conv.bias, stride=2, padding=padding)
        return self.output_q(y)


@pytest.mark.parametrize(
    ("kernel", "size", "target", "expected"),
    [
        (7, 16, "onnxruntime", True),
        (3, 16, "onnxruntime", True),
        (3, 15, "onnxruntime", False),
        (7, 16, "onnxruntime_avx2", False),
    ],
)
def test_a_stem_is_rearranged_where_the_image_is_even_and_keeps_its_values(
    tmp_path: Path, kernel: int, size: int, target: str, expected: bool
) -> None:
    model, x = Stem(kernel), torch.randn(2, 3, size, size)
    path = export_onnx(model, tmp_path / "m.onnx", x, target).path
    assert ("SpaceToDepth" in [one.op_type for one in onnx.load(path).graph.node]) is expected
    (found,) = run_file(path, x)
    # one step, where a sum lies half way between two
    assert np.abs(found - model(x).detach().numpy()).max() <= 0.02 * 1.001
