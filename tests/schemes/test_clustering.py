"""Cluster leaves few values, keeps zeros, and stops at its own result."""

import copy

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.schemes import Cluster, Compose, Prune, Quantize


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_at_most_two_to_the_bits_values_remain(bits: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(40, 40)
    Compose([Prune(), Cluster(bits)]).compress(model, 0.5)
    assert len(model.weight.unique()) <= 2**bits


def test_zeros_stay_zero_and_no_other_weight_becomes_zero() -> None:
    torch.manual_seed(0)
    model = nn.Linear(30, 30)
    Prune().compress(model, 0.9)
    zeros = model.weight == 0
    Cluster(4).compress(model, 0.9)
    assert torch.equal(model.weight == 0, zeros)


def test_each_layer_has_its_own_codebook() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 3.0], [1.0, 3.0]]))
        model[1].weight.copy_(torch.tensor([[10.0, 30.0], [20.0, 20.0]]))
    Cluster(1).compress(model, 0.0)
    assert model[0].weight.unique().tolist() == [2.0]
    assert model[1].weight.unique().tolist() == [20.0]


def test_quantizing_after_clustering_keeps_the_codebook_small() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    scheme = Compose([Prune(), Cluster(4), Quantize("float16")])
    scheme.compress(model, 0.5)
    scheme.decompress(model)
    assert len(model.weight.unique()) <= 16
    assert torch.equal(model.weight, model.weight.half().float())


def test_biases_and_norms_are_untouched(convnet: nn.Module) -> None:
    before = copy.deepcopy(convnet)
    Cluster(2).compress(convnet, 0.0)
    assert Cluster().parameters(convnet) == {f"{i}.weight" for i in (0, 3, 6, 8)}
    for name, parameter in convnet.named_parameters():
        untouched = name not in Cluster().parameters(convnet)
        assert torch.equal(parameter, before.get_parameter(name)) == untouched


def test_a_layer_of_zeros_stays() -> None:
    model = nn.Linear(3, 3)
    nn.init.zeros_(model.weight)
    Cluster(2).compress(model, 0.0)
    assert not model.weight.any()


@pytest.mark.parametrize("bits", [0, 9, 2.5])
def test_codes_of_other_widths_are_refused(bits: int) -> None:
    with pytest.raises(ArgumentError, match="bits is"):
        Cluster(bits)
