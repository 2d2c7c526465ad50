"""Norms and biases bring outputs back as far as least squares can."""

import copy

import pytest
import torch
from torch import nn

from nncfx.quantization.rate_distortion.output_matching import adjustable_parameters, match_outputs
from small_models import Function


def test_a_norms_scale_and_shift_are_those_of_a_regression() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    images, noisy = torch.randn(16, 3, 8, 8), copy.deepcopy(model)
    noisy[0].weight.data += 0.1 * torch.randn_like(noisy[0].weight) + 0.1
    before = noisy(images).transpose(0, 1).flatten(1).detach()
    target = model(images).transpose(0, 1).flatten(1).bfloat16().double().detach()
    match_outputs(noisy, model, [images])
    after = noisy(images).transpose(0, 1).flatten(1).detach()
    for x, y, found in zip(before.double(), target, after.double(), strict=True):
        design = torch.stack([x, torch.ones_like(x)], 1)
        wanted = design @ torch.linalg.lstsq(design, y.unsqueeze(1)).solution
        torch.testing.assert_close(found, wanted.flatten(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layer", [nn.Linear(6, 5), nn.Conv1d(6, 5, 1)])
def test_biases_give_the_mean_back(layer: nn.Module) -> None:
    inputs = torch.rand(32, 6) if isinstance(layer, nn.Linear) else torch.rand(8, 6, 4)
    noisy = copy.deepcopy(layer)
    noisy.weight.data *= 0.7
    match_outputs(noisy, layer, [inputs])
    others = [0] if inputs.ndim == 2 else [0, 2]
    # the target is kept in bfloat16: 8 bits of numbers around 1
    torch.testing.assert_close(
        noisy(inputs).mean(others), layer(inputs).mean(others), rtol=0, atol=4e-3
    )


def test_a_bias_gives_back_the_mean_over_all_batches() -> None:
    layer = nn.Linear(6, 5)
    batches = [torch.rand(32, 6), torch.rand(32, 6) + 1, torch.rand(32, 6) - 2]
    noisy = copy.deepcopy(layer)
    noisy.weight.data *= 0.7
    match_outputs(noisy, layer, batches)
    inputs = torch.cat(batches)
    torch.testing.assert_close(noisy(inputs).mean(0), layer(inputs).mean(0), rtol=0, atol=4e-3)


def test_a_layer_norm_is_matched_along_its_last_axis() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6))
    noisy, inputs = copy.deepcopy(model), torch.randn(4, 10, 6)
    noisy[0].weight.data += 0.2 * torch.randn(6, 6)
    before = (noisy(inputs) - model(inputs)).square().sum()
    match_outputs(noisy, model, [inputs])
    assert (noisy(inputs) - model(inputs)).square().sum() < 0.9 * before


def test_a_module_that_is_called_twice_stays() -> None:
    model = Function(lambda m, x: m.layer(m.layer(x)), layer=nn.Linear(4, 4))
    noisy = copy.deepcopy(model)
    noisy.layer.weight.data *= 0.5
    match_outputs(noisy, model, [torch.randn(8, 4)])
    assert torch.equal(noisy.layer.bias, model.layer.bias)


def test_adjustable_are_norms_and_biases() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.PReLU())
    assert sorted(adjustable_parameters(model)) == ["0.bias", "1.bias", "1.weight"]
