"""Grids of channel ids cost nothing where ids do not change."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nncfx.channels.ids import (
    NO_CHANNEL,
    along,
    compact,
    same_channels,
    sequence,
    spread,
    varying_axes,
)

grids = hnp.arrays(
    np.int64, hnp.array_shapes(max_dims=4, max_side=3), elements=st.integers(NO_CHANNEL, 2)
)


@given(grids)
def test_compacting_changes_no_id(ids: np.ndarray) -> None:
    grid = torch.from_numpy(ids)
    assert torch.equal(compact(grid), grid)


@given(grids)
def test_axes_vary_exactly_where_ids_change(ids: np.ndarray) -> None:
    expected = [k for k in range(ids.ndim) if (ids != ids.take([0], axis=k)).any()]
    assert list(varying_axes(compact(torch.from_numpy(ids)))) == expected


def test_a_grid_takes_the_memory_of_its_channels_only() -> None:
    grid = along(np.arange(8), 1, (32, 8, 224, 224))
    assert grid.untyped_storage().nbytes() == 8 * 8


def test_a_sole_channel_varies_along_no_axis() -> None:
    grid = along(np.array([7]), 1, (2, 1, 3))
    assert (grid.unique().tolist(), varying_axes(grid)) == ([7], ())


def test_channels_vary_along_their_axis_though_both_ends_are_one() -> None:
    assert varying_axes(along(np.array([7, 8, 7]), 1, (2, 3, 3))) == (1,)


def test_a_sequence_is_the_ids_along_the_only_axis_that_varies() -> None:
    grid = along(np.arange(3), -2, (2, 3, 4))
    assert sequence(grid, 1).tolist() == [0, 1, 2]
    assert sequence(grid, 2) is None
    assert sequence(grid[:0], 1) is None


def test_ids_spread_over_pixels_of_any_number() -> None:
    grid = along(np.arange(3), 1, (2, 3, 4))
    assert torch.equal(spread(grid, (2, 3, 9)), along(np.arange(3), 1, (2, 3, 9)))
    assert spread(grid, (2, 6, 4)) is None
    assert spread(grid, (2, 3)) is None


def test_an_empty_grid_is_left_alone() -> None:
    assert compact(torch.empty((0, 3), dtype=torch.int64)).shape == (0, 3)


def test_channels_are_the_same_if_they_appear_in_the_same_order() -> None:
    before = torch.tensor([0, 1, 2])
    assert same_channels(before, torch.tensor([0, 0, 1, 1, 2]))
    assert same_channels(before, torch.tensor([0, 1, 2, 0, 1, 2]))
    assert not same_channels(before, torch.tensor([1, 0, 2]))
    assert not same_channels(before, torch.tensor([0, 1]))


def test_a_grid_without_axes_is_compact() -> None:
    grid = torch.tensor(3)
    assert torch.equal(compact(grid), grid)


def test_ids_that_change_between_equal_ends_run_along_their_axis() -> None:
    grid = along(np.array([0, 1, 0]), 1, (2, 3))
    assert grid.tolist() == [[0, 1, 0]] * 2
    assert varying_axes(grid) == (1,)
