"""What torch's exporter leaves out is refused."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.errors import ExportError


class Pooled(nn.Module):
    """With a divisor that is not the size of the window."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, 2, divisor_override=3)


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.AvgPool2d(2, divisor_override=3)), nn.Sequential(Pooled())]
)
def test_a_divisor_of_its_own_is_refused(model: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"'0' has divisor_override=3.*multiply the result"):
        nncfx.export_onnx(model, tmp_path / "pool.onnx", torch.ones(1, 2, 4, 4))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_smoothed_resize_with_aligned_corners_is_refused(mode: str, tmp_path: Path) -> None:
    resize = nn.Upsample(scale_factor=0.7, mode=mode, align_corners=True)
    resize.forward = lambda x: F.interpolate(
        x, scale_factor=0.7, mode=mode, align_corners=True, antialias=True
    )
    with pytest.raises(ExportError, match=r"'0' has antialias=True and align_corners=True"):
        nncfx.export_onnx(nn.Sequential(resize), tmp_path / "r.onnx", torch.ones(1, 2, 9, 9))


def test_the_number_of_pixels_is_written(tmp_path: Path) -> None:
    nncfx.export_onnx(nn.AvgPool2d(2), tmp_path / "pool.onnx", torch.ones(1, 2, 4, 4))
