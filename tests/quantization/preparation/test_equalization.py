"""Neighbouring layers with equal ranges."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.preparation.equalization import equalization_scales, equalize_layers
from small_models import Function

IMAGES = (2, 3, 8, 8)


def uneven(model: nn.Module) -> nn.Module:
    """Give the output channels of every layer ranges that differ by up to a factor of 100."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            weight = module.weight.data
            factors = 10 ** (2 * torch.rand(len(weight), generator=generator))
            weight *= factors.view(-1, *[1] * (weight.ndim - 1))
    return model.double().eval()


@pytest.mark.parametrize(
    ("model", "shape", "pairs"),
    [
        (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), (5, 4), (("0", "2"),)),
        (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), (5, 2, 4), (("0", "2"),)),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(4), nn.Conv2d(4, 2, 1)),
            IMAGES,
            (("0", "2"),),
        ),
        (
            nn.Sequential(
                *(nn.Conv2d(3, 6, 1), nn.ReLU(inplace=True)),
                *(nn.Conv2d(6, 6, 3, groups=6), nn.LeakyReLU(), nn.Conv2d(6, 4, 1, groups=2)),
            ),
            IMAGES,
            (("0", "2"), ("2", "4")),
        ),
        (
            nn.Sequential(
                *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
                *(nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 2)),
            ),
            IMAGES,
            (("0", "4"), ("4", "6")),
        ),
    ],
)
def test_the_model_computes_what_it_did(
    model: nn.Module, shape: tuple[int, ...], pairs: tuple[tuple[str, str], ...]
) -> None:
    uneven(model)
    inputs = torch.randn(shape).double()
    with torch.no_grad():
        before = model(inputs)
        assert equalize_layers(model, inputs) == pairs
        torch.testing.assert_close(model(inputs), before, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU6(), nn.Conv2d(4, 2, 1)), IMAGES),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)), IMAGES),
        (nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Linear(8, 2)), IMAGES),
        (nn.Sequential(nn.Linear(4, 6), nn.Flatten(), nn.Linear(12, 3)), (5, 2, 4)),
        (nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3)), (5, 4)),
    ],
)
def test_what_would_change_the_model_is_left_alone(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert equalize_layers(model, torch.randn(shape)) == ()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_layer_with_two_readers_is_left_alone() -> None:
    model = Function(
        lambda m, x: m.one(y := m.first(x)) + m.two(y),
        first=nn.Linear(3, 3),
        one=nn.Linear(3, 3),
        two=nn.Linear(3, 3),
    )
    assert equalize_layers(model, torch.randn(2, 3)) == ()


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=9))
def test_after_equalisation_the_ranges_of_each_channel_are_equal(
    ranges: list[tuple[float, float]],
) -> None:
    first, second = torch.tensor(ranges, dtype=torch.float64).unbind(1)
    scales = equalization_scales(first, second)
    torch.testing.assert_close(first / scales, second * scales)


def rounded(weight: Tensor) -> Tensor:
    """Return `weight` at eight bits, symmetric, per tensor."""
    spec = QuantizerSpec()
    scale, zero_point = qparams_from_range(weight.amin(), weight.amax(), spec)
    return fake_quantize(weight, scale, zero_point, spec)


def test_weights_quantized_per_tensor_lose_less() -> None:
    torch.manual_seed(0)
    model = uneven(nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3)))
    inputs = torch.randn(4, 8, 9, 9).double()
    exact = model(inputs)

    def error() -> float:
        quantized = copy.deepcopy(model)
        for parameter in (quantized[0].weight, quantized[2].weight):
            parameter.data = rounded(parameter.data.float()).double()
        return (quantized(inputs) - exact).square().mean().item()

    before = error()
    equalize_layers(model, inputs)
    assert error() < before / 2
