"""Weights, steps and biases that are learned block by block."""

import copy
import logging

import pytest
import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.quantization import QuantizeOptions, Quantizer, quantize
from nncfx.quantization.rounding.block_reconstruction import RoundingSettings, reconstruct_blocks
from small_models import Function

LAYERS = ("0", "3", "6", "11")


def network() -> nn.Module:
    """Return a stem, a depthwise and a pointwise convolution with their norms, and a head."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU6()),
        *(nn.Conv2d(12, 12, 3, groups=12, bias=False), nn.BatchNorm2d(12), nn.ReLU6()),
        *(nn.Conv2d(12, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)),
    ).eval()


def images(seed: int = 0) -> Tensor:
    noise = torch.randn(48, 3, 10, 10, generator=torch.Generator().manual_seed(seed))
    return noise.cumsum(-1).cumsum(-2) / 6


def rounded(rounding: str) -> NNCFNetwork:
    options = QuantizeOptions(rounding=rounding, correct_biases=False)  # type: ignore[arg-type]  # literals
    return quantize(network(), images().split(16), weight_bits=3, options=options)


def learned(steps: int = 60) -> tuple[NNCFNetwork, dict[str, float]]:
    model = rounded("gptq")
    values = {name: one.detach() for name, one in network().named_parameters()}
    batches = list(images().split(16))
    settings = RoundingSettings(steps=steps)
    return model, reconstruct_blocks(model, LAYERS, batches, values, settings)


def error(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model(images(1)) - network()(images(1))).square().mean())


def test_it_comes_nearer_than_gptq_on_images_that_it_has_not_seen() -> None:
    model, shares = learned()
    assert error(model) < 0.7 * error(rounded("gptq"))
    assert set(shares) == set(LAYERS)
    assert all(0 < one <= 1 for one in shares.values())


def test_afterwards_weights_lie_on_constant_grids_and_nothing_asks_for_gradients_more() -> None:
    model, _ = learned(steps=10)
    flags = {name: one.requires_grad for name, one in network().named_parameters()}
    stored = dict(model.named_parameters())
    assert {name: stored[name].requires_grad for name in flags} == flags
    for one in model.nncf.hooks:
        assert isinstance(one.hook, Quantizer)
        assert not one.hook.is_learned
        assert not one.hook.was_learned  # a grid that clips no weight is none of training's
    for name in LAYERS:
        weight = f"{name}.weight"
        assert torch.equal(model.nncf.weight(weight), stored[weight])


def test_what_was_pruned_stays_zero() -> None:
    pruned = network()
    for layer in (pruned[6], pruned[11]):
        weight = layer.get_parameter("weight").data
        weight[weight.abs() < weight.abs().median()] = 0
    options = QuantizeOptions(rounding="adaptive", correct_biases=False)
    model = quantize(pruned, images().split(16), weight_bits=3, options=options)
    for name in ("6.weight", "11.weight"):
        gone = pruned.get_parameter(name) == 0
        assert gone.any()
        assert not model.get_parameter(name)[gone].any()


def test_what_does_not_come_nearer_stays_as_it_was() -> None:
    model = rounded("gptq")
    before = copy.deepcopy(model.state_dict())
    values = {name: one.detach() for name, one in network().named_parameters()}
    wild = RoundingSettings(steps=3, lr=1e4)
    shares = reconstruct_blocks(model, LAYERS, [images()], values, wild)
    assert set(shares.values()) == {1.0}
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_block_that_gets_other_examples_once_quantized_stays_as_it_was() -> None:
    torch.manual_seed(0)
    # the expert sees some of the examples
    net = Function(
        lambda m, x: m.expert((y := m.router(x))[y[:, 0] > 0]),
        router=nn.Linear(8, 8),
        expert=nn.Linear(8, 4),
    ).eval()
    x = torch.randn(64, 8)
    options = QuantizeOptions(rounding="gptq", correct_biases=False)
    model = quantize(net, [x], weight_bits=2, options=options)
    assert len(model(x)) != len(net(x))
    values = {name: one.detach() for name, one in net.named_parameters()}
    layers, settings = ("router", "expert"), RoundingSettings(steps=3)
    before = model.expert.weight.clone()
    assert reconstruct_blocks(model, layers, [x], values, settings)["expert"] == 1
    assert torch.equal(model.expert.weight, before)


def test_it_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nncfx.quantization.rounding"):
        learned(steps=2)
    assert "Block 1 of 2, '0' (2 layers)" in caplog.text
    assert "Block 2 of 2, '6' (2 layers)" in caplog.text


@pytest.mark.parametrize("name", ["steps", "batch", "lr"])
def test_a_setting_that_is_not_positive_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is 0; it must be positive"):
        RoundingSettings(**{name: 0})
