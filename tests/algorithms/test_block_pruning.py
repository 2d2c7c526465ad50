"""Block pruning: tiles that need not divide a weight, ranked as wholes."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nncfx.algorithms.block_pruning.builder import BlockPruningController
from nncfx.algorithms.block_pruning.masks import block_masks, padded_block_scores
from nncfx.errors import ArgumentError, CompressionError, ConfigError
from nncfx.schemes import BlockPrune
from nncfx.training.create import create_compressed_model

EXTENTS = st.tuples(*[st.integers(1, 5)] * 2)


def test_blocks_that_divide_are_those_of_condensa() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12))
    (mask,) = block_masks({"w": model[0].weight}, 0.5, (4, 2)).values()
    BlockPrune(bs=(4, 2)).compress(model, 0.5)
    assert torch.equal(model[0].weight != 0, mask)


@given(shape=EXTENTS, block=EXTENTS, level=st.floats(0, 0.99))
def test_every_block_stays_or_goes_as_a_whole(
    shape: tuple[int, int], block: tuple[int, int], level: float
) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    mask = block_masks({"w": weight}, level, block)["w"]
    assert mask.shape == weight.shape
    rows = [range(i, min(i + block[0], shape[0])) for i in range(0, shape[0], block[0])]
    columns = [range(j, min(j + block[1], shape[1])) for j in range(0, shape[1], block[1])]
    tiles = [mask[r.start : r.stop, c.start : c.stop] for r in rows for c in columns]
    assert all(tile.all() or not tile.any() for tile in tiles)
    gone = sum(not tile.any() for tile in tiles)
    assert gone == min(int(level * len(tiles)), len(tiles) - 1)


def test_a_block_beyond_the_edge_scores_what_is_within() -> None:
    weight = torch.tensor([[3.0, 4.0, 5.0]])
    assert padded_block_scores(weight, (2, 2), "l2norm").tolist() == [[5.0, 5.0]]


def test_axes_without_an_extent_have_blocks_of_one() -> None:
    weight = torch.ones(4, 4, 3, 3)
    weight[:2, :, 1, 1] = 0.5
    mask = block_masks({"w": weight}, 1 / 18, (2, 4))["w"]
    assert torch.equal(mask, weight == 1)


def test_blocks_of_three_axes_leave_matrices_alone() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(4, 4))
    controller = applied(model, torch.ones(1, 2, 3, 3), block=[2, 2, 3])
    assert set(controller.masks.hooks) == {"0.weight"}


def test_a_model_without_weights_of_so_many_axes_is_an_error() -> None:
    with pytest.raises(CompressionError, match="no weight of at least 3 axes"):
        applied(nn.Linear(4, 4), torch.ones(1, 4), block=[2, 2, 3])


def test_biases_are_left_alone() -> None:
    assert set(applied(nn.Linear(4, 4), torch.ones(1, 4)).masks.hooks) == {"weight"}


@pytest.mark.parametrize("block", [(), (0, 2), (2, 2, 2)])
def test_a_block_that_does_not_fit_is_refused(block: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match=r"a block has an extent of at least 1"):
        padded_block_scores(torch.ones(4, 4), block, "l2norm")


def test_a_block_without_extents_is_a_fault_of_the_config() -> None:
    with pytest.raises(ConfigError, match="block: has 0 entries; at least 1 are needed"):
        applied(nn.Linear(4, 4), torch.ones(1, 4), block=[])


def test_the_level_is_a_fraction_of_the_blocks() -> None:
    controller = applied(nn.Linear(6, 8), torch.ones(1, 6))  # 2 x 2 tiles, two of them narrow
    controller.level = 0.5
    mask = controller.masks.hooks["weight"][0].mask
    assert mask[::4, ::4].sum() == 2
    assert controller.statistics().level == pytest.approx(float((mask == 0).double().mean()))


def applied(model: nn.Module, inputs: torch.Tensor, **params: Any) -> BlockPruningController:  # noqa: ANN401
    item = {"algorithm": "block_pruning", "params": params}
    return create_compressed_model(model, {"compression": item}, inputs)[0]
