"""Published architectures with half of their channels unread: thinned equals masked."""

import importlib

import pytest
import torch
from pytorchcv.models.vgg import VGG
from torch import nn

from nncfx.thinning import thin
from small_models import randomized, unread

# module of pytorchcv, model, side of the image
SMALL = [
    ("resnet_cifar", "resnet20_cifar10", 32),
    ("squeezenet", "squeezenet_v1_1", 224),
    ("mobilenetv2", "mobilenetv2_wd4", 224),
    ("shufflenetv2", "shufflenetv2_wd2", 224),
    ("seresnet", "seresnet10", 224),
]
LARGE = [
    ("resnet", "resnet18", 224),
    ("densenet", "densenet121", 224),
    ("resnext", "resnext26_32x4d", 224),
]


def check(model: nn.Module, image: torch.Tensor) -> None:
    expected = unread(model, image)
    result = thin(model, image)
    assert result.removed == expected
    assert result.max_error <= 1e-12
    before, after = result.parameters
    assert after < 0.7 * before


@pytest.mark.parametrize(
    ("module", "name", "side"),
    [*SMALL, *(pytest.param(*one, marks=pytest.mark.slow) for one in LARGE)],
)
def test_thinned_equals_masked_in_float64(module: str, name: str, side: int) -> None:
    torch.manual_seed(0)
    build = getattr(importlib.import_module(f"pytorchcv.models.{module}"), name)
    model = randomized(build()).double().eval()
    image = torch.randn(1, 3, side, side, dtype=torch.float64)
    check(model, image)


@pytest.mark.slow
def test_thinned_equals_masked_after_a_flatten() -> None:
    widths = [[8], [16], [16, 16], [24, 24], [32, 32]]
    model = randomized(VGG(channels=widths, bias=True, use_bn=False)).double().eval()
    check(model, torch.randn(1, 3, 224, 224, dtype=torch.float64))
