"""Prune and BlockPrune are Condensa's, and level zero changes nothing."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nncfx.errors import ArgumentError, CompressionError
from nncfx.schemes import BlockPrune, Prune, Scheme

levels = st.floats(0, 0.99)
SCHEMES = [Prune(), BlockPrune("l1norm", (1, 2)), BlockPrune(bs=2)]


def small_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 6), nn.Linear(6, 4)
    )


def parameters_equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_one_threshold_holds_for_all_layers() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -4.0]]))
        model[1].weight.copy_(torch.tensor([[3.0, 2.0]]))
    Prune().compress(model, 0.5)
    assert model[0].weight.tolist() == [[0.0, -4.0]]
    assert model[1].weight.tolist() == [[3.0, 0.0]]


def test_ties_at_the_threshold_all_stay() -> None:
    model = nn.Linear(4, 1)
    nn.init.ones_(model.weight)
    Prune().compress(model, 0.5)
    assert model.weight.tolist() == [[1.0] * 4]


@given(level=levels, seed=st.integers(0, 50))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_projecting_twice_is_projecting_once(scheme: Scheme, level: float, seed: int) -> None:
    model = small_net(seed)
    try:
        scheme.compress(model, level)
    except CompressionError:  # so high a level that no block is left
        return
    once = copy.deepcopy(model)
    scheme.compress(model, level)
    assert parameters_equal(model, once)


@given(level=levels)
def test_the_density_reached_is_the_density_asked_for(level: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 30))
    Prune().compress(model, level)
    kept = sum(int(layer.weight.count_nonzero()) for layer in model)
    # random weights have no ties; the count is rounded down
    assert kept <= (1 - level) * 1000 + 1e-9
    assert kept > (1 - level) * 1000 - 1 - 1e-9


def test_scaling_all_weights_keeps_the_mask() -> None:
    model, scaled = small_net(), small_net()
    with torch.no_grad():
        for parameter in scaled.parameters():
            parameter.mul_(-8)
    Prune().compress(model, 0.7)
    Prune().compress(scaled, 0.7)
    for a, b in zip(model.parameters(), scaled.parameters(), strict=True):
        assert torch.equal(a * -8, b)


def test_constrained_are_the_weights_of_linear_and_conv() -> None:
    assert Prune().parameters(small_net()) == {"0.weight", "3.weight", "4.weight"}
    assert BlockPrune().parameters(small_net()) == {"3.weight", "4.weight"}


def test_an_ignored_layer_neither_changes_nor_counts() -> None:
    model = small_net()
    before = model[4].weight.clone()
    Prune(ignored=("4",)).compress(model, 0.9)
    assert torch.equal(model[4].weight, before)
    kept = int(model[0].weight.count_nonzero() + model[3].weight.count_nonzero())
    assert kept == int(0.1 * (36 + 96))


def test_blocks_go_as_a_whole() -> None:
    model = small_net()
    BlockPrune("l2norm", 2).compress(model, 0.5)
    blocks = model[3].weight.reshape(3, 2, 8, 2).transpose(1, 2).flatten(2)
    counts = blocks.count_nonzero(dim=2)
    assert set(counts.flatten().tolist()) == {0, 4}


def test_blocks_that_do_not_tile_a_layer_name_it() -> None:
    with pytest.raises(CompressionError, match=r"do not tile '3\.weight' of \(6, 16\)"):
        BlockPrune(bs=4).compress(small_net(), 0.5)


def test_a_block_without_extent_is_refused() -> None:
    with pytest.raises(ArgumentError, match="bs is 0"):
        BlockPrune(bs=0)


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(CompressionError, match="finds no layer"):
        Prune().compress(nn.Sequential(nn.ReLU()), 0.5)


def test_a_level_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(CompressionError, match="keeps none of 4 entries"):
        Prune().compress(nn.Linear(2, 2), 0.9)
