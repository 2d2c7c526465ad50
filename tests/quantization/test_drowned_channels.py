"""Results on one grid for all channels that a norm scales alike."""

import logging
import math

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.network import NNCFNetwork
from nncfx.quantization.drowned_channels import without_drowned_channels
from nncfx.quantization.placement.placement_options import PlacementOptions
from nncfx.quantization.placement.plan_model import plan_model
from nncfx.tracing import PostSite

IMAGES = torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
RESULT = "Sequential/Conv2d[0]/conv2d_0"


def normalising(smallest: float, norm: nn.Module | None = None) -> nn.Module:
    """Return a model whose norm reads eight channels, one of them of another size."""
    torch.manual_seed(0)
    first = nn.Conv2d(1, 8, 1, bias=False)
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.weight[0] = smallest
    norm = norm or nn.InstanceNorm2d(8, affine=True)
    return nn.Sequential(first, norm, nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()


def decibels(expected: Tensor, found: Tensor) -> float:
    error = (found - expected).square().sum() / expected.square().sum()
    return -10 * math.log10(error.item())


def results(model: NNCFNetwork) -> set[str]:
    return {one.site.address for one in model.nncf.hooks if isinstance(one.site, PostSite)}


def test_a_small_channel_that_a_norm_makes_large_is_not_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hundredth of the range is a few steps of 8 bits: 11 dB behind the norm."""
    model = normalising(0.003)
    with caplog.at_level(logging.WARNING, "nncfx"):
        found = nncfx.quantize(model, [IMAGES])
    assert RESULT not in results(found)
    assert "1 of 1 results" in caplog.text
    assert RESULT in caplog.text
    assert decibels(model(IMAGES), found(IMAGES)) > 30
    fast = nncfx.quantize(model, [IMAGES], preset="fast")
    assert RESULT in results(fast)
    assert decibels(model(IMAGES), fast(IMAGES)) < 20


@pytest.mark.parametrize(
    ("smallest", "norm"),
    [(1.0, None), (0.003, nn.GroupNorm(1, 8)), (0.003, nn.Identity()), (0.0, None)],
    ids=["alike", "one group", "no norm", "constant"],
)
def test_results_stay_on_their_grid_where_no_norm_enlarges_a_channel(
    smallest: float, norm: nn.Module | None
) -> None:
    model = nncfx.wrap(normalising(smallest, norm), IMAGES)
    plan = plan_model(model, "onnxruntime", PlacementOptions())
    assert without_drowned_channels(model, plan, IMAGES) == plan
    assert not model.nncf.hooks
