"""Footprint arithmetic reproduces what Condensa published."""

import pytest
import torch
from torch import nn

from nncfx.quantization import quantize
from nncfx.schemes import (
    Compose,
    Prune,
    Quantize,
    footprint_bytes,
    level_to_density,
    nonzero_parameters,
)
from nncfx.training import create_compressed_model


def network(weights: int, biases: int) -> nn.Module:
    """A linear layer with so many weights in all, and a norm-like vector for so many biases."""
    model = nn.Linear(weights, 1, bias=False)
    torch.manual_seed(0)
    nn.init.normal_(model.weight)
    model.bias = nn.Parameter(torch.ones(biases))
    return model


@pytest.mark.parametrize(
    ("weights", "biases", "level", "ratio"),
    [
        # AlexNet of Condensa's CIFAR-10 notebook, density 0.02, published 97.83x
        (2_471_104, 1_162, 0.98, 97.75),
        # LeNet-5 of the MNIST notebook, density 0.007: 431,080 * 4 / (2 * (3,013 + 580)),
        # published 239x
        (430_500, 580, 0.993, 239.955),
    ],
)
def test_published_ratios_follow_from_the_definition(
    weights: int, biases: int, level: float, ratio: float
) -> None:
    model = network(weights, biases)
    dense = footprint_bytes(model)
    assert dense == 4 * (weights + biases)
    Compose([Prune(), Quantize("float16")]).compress(model, level)
    assert nonzero_parameters(model) == int(level_to_density(level) * weights) + biases
    assert dense / footprint_bytes(model) == pytest.approx(ratio, abs=0.005)


def test_each_parameter_counts_in_its_own_dtype() -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False).half(), nn.Linear(2, 1, bias=False))
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    assert footprint_bytes(model) == 2 * 2 + 2 * 4


def test_a_shared_parameter_counts_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    nn.init.ones_(model[0].weight)
    assert nonzero_parameters(model) == 9


def test_buffers_do_not_count() -> None:
    assert footprint_bytes(nn.BatchNorm1d(5, affine=False)) == 0


def test_int8_takes_a_byte_and_half_of_float16_after_pruning() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 32, bias=False)
    dense = footprint_bytes(model)
    Compose([Prune(), Quantize("int8")]).compress(model, 0.5)
    assert footprint_bytes(model) == nonzero_parameters(model) <= dense / 8


def test_a_quantized_weight_takes_the_bits_of_its_grid() -> None:
    torch.manual_seed(0)
    data = [torch.randn(8, 16)]
    model = nn.Sequential(nn.Linear(16, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
    for bits, count in ((8, 160), (4, 80)):
        assert footprint_bytes(quantize(model, data, preset="fast", weight_bits=bits)) == count


def test_steps_that_quantizers_learn_are_no_parameters_of_the_model() -> None:
    """Two layers of 4 x 3 and 3 x 2 weights with their biases."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    config = {"input_info": {"sample_size": [1, 4]}, "compression": {"algorithm": "quantization"}}
    batches = [torch.randn(8, 4)]
    _, network = create_compressed_model(model, config, calibration_batches=batches)
    assert len(list(network.parameters())) > 4
    assert nonzero_parameters(network) == 4 * 3 + 3 + 3 * 2 + 2
    # of integers that round to zero nothing is known here: the raw weights count, a byte each
    assert footprint_bytes(network) == 4 * 3 + 3 * 2 + 4 * (3 + 2)
