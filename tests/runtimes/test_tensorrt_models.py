"""Engines of real networks, built by TensorRT for RTX without a GPU."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pytorchcv.models.mobilenetv2 import mobilenetv2_w1
from pytorchcv.models.resnet import resnet18, resnet50
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from nncfx.channels import analyze_channels
from nncfx.export import export_onnx, reorder_channels
from nncfx.runtimes import BuildOptions, runtime_named
from nncfx.runtimes.backends.tensorrt_runtime import TensorRtSession
from nncfx.schemes import Ranking, group_masks, group_scores, keep_groups, unconstrained_masks
from nncfx.thinning import prunable_channels, thin

pytest.importorskip("tensorrt_rtx_bindings", reason="tensorrt-rtx-cu13-bindings is not installed")

IMAGES = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))


def built(path: os.PathLike[str], *settings: tuple[str, str]) -> TensorRtSession:
    options = BuildOptions(settings=(("computeCapability", "8.9"), *settings))
    return runtime_named("tensorrt_rtx").build(path, options)


class Reordered(nn.Module):
    """Two consumers that read overlapping slices, and one that must copy its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.producer = nn.Conv2d(3, 24, 3)
        self.first, self.second = nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3)
        self.third = nn.Conv2d(8, 16, 3)
        self.register_buffer("channels", torch.arange(0, 24, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.producer(x).relu()
        copied = torch.index_select(x, 1, self.channels)
        return self.first(x[:, :16]) + self.second(x[:, 8:]) + self.third(copied)


def vision_transformer() -> nn.Module:
    config = ViTConfig(hidden_size=96, num_hidden_layers=2, num_attention_heads=3)
    config.intermediate_size = 192
    return ViTForImageClassification(config)


def thinned() -> nn.Module:
    model = resnet18()
    channels = prunable_channels(model, IMAGES)
    weights = dict(model.named_parameters(remove_duplicate=False))
    keep = keep_groups(group_scores(channels, weights, "l1norm", normalize=True), 0.5)
    with torch.no_grad():
        for parameter, mask in group_masks(channels, keep, weights).items():
            weights[parameter].masked_fill_(~mask, 0)
    result = thin(model, IMAGES, channels=channels, align=8)
    assert result.removed
    return result.model


def unconstrained() -> nn.Module:
    model, images = resnet20_cifar10().eval(), IMAGES[..., :32, :32]
    weights = dict(model.named_parameters(remove_duplicate=False))
    ranking = Ranking(criterion="l1norm", scope="local")
    channels = analyze_channels(model, images)
    with torch.no_grad():
        for name, mask in unconstrained_masks(channels, weights, 0.5, ranking).items():
            weights[name].mul_(mask)
    result = reorder_channels(model, images, target=None)
    assert {read.kind for read in result.reads.values()} >= {"slice"}
    return result.model


MODELS = {
    "ResNet-50": pytest.param(resnet50, 54, marks=pytest.mark.slow),
    "MobileNetV2": pytest.param(mobilenetv2_w1, 54, marks=pytest.mark.slow),
    # Patches, then q, k, v, two products of attention, output and two products of the block.
    "ViT": pytest.param(vision_transformer, 1 + 2 * 8 + 1, marks=pytest.mark.slow),
    "thinned ResNet-18": pytest.param(thinned, 21, marks=pytest.mark.slow),
    "slices and a copy": pytest.param(Reordered, 4),
    "ResNet-20 pruned without constraints": pytest.param(
        unconstrained, 22, marks=pytest.mark.slow
    ),
}


@pytest.mark.parametrize(("make", "products"), MODELS.values(), ids=MODELS)
def test_it_builds_in_float_half_and_int8(
    make: type[nn.Module],
    products: int,
    in_int8: Callable[[Path, torch.Tensor], Path],
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    images = IMAGES[..., :32, :32] if make is unconstrained else IMAGES
    full, half = tmp_path / "full.onnx", tmp_path / "half.onnx"
    export_onnx(model, full, images, target="tensorrt", dynamic_batch=False)
    assert len(built(full).facts.quantized.floating) == products
    assert len(built(in_int8(full, images), ("int8", "all")).facts.quantized.int8) == products
    export_onnx(model.half(), half, images.half(), target="tensorrt", dynamic_batch=False)
    (spec,) = built(half).inputs
    assert spec.dtype == "float16"
