"""The cheapest way to read channels, by hand-made costs."""

import dataclasses
from types import SimpleNamespace

import numpy as np

from nncfx.export import SelectionCost
from nncfx.reorder.cost import cheapest_readings, is_placing_cheaper
from nncfx.schemes.masks.alignment import Alignment

UNIT = SelectionCost(
    slice_ns=10, slice_number_ns=1, is_slice_view=True, gather_ns=20, gather_number_ns=1, mac_ns=1
)
SCATTERED = np.array([False, True, False, True, True, False])


def read(live: np.ndarray, *, pixels: int, macs: float, free: bool = True) -> list[int]:
    return reads([live], UNIT, pixels=pixels, macs=macs, free=free)[0]


def reads(
    lives: list[np.ndarray], cost: SelectionCost, *, pixels: int, macs: float, free: bool = True
) -> list[list[int]]:
    reading = SimpleNamespace(pixels=pixels, macs=macs, is_sliced_free=free)
    return [one.tolist() for one in cheapest_readings(lives, [reading] * len(lives), cost)]


def test_everything_is_read_where_selecting_costs_more_than_computing() -> None:
    # reading all costs 6 x 1, the run 4 x 1 + 10, a gather 3 x 1 + 20 + 3 x 1
    assert read(SCATTERED, pixels=1, macs=1) == [0, 1, 2, 3, 4, 5]


def test_a_run_with_dead_channels_is_read_where_the_view_is_free() -> None:
    # reading all costs 600, the run 400 + 10, a gather 300 + 20 + 300
    assert read(SCATTERED, pixels=100, macs=100) == [1, 2, 3, 4]


def test_a_slice_that_is_not_contiguous_pays_for_its_numbers() -> None:
    # reading all costs 600, the run 400 + 10 + 400, a gather 300 + 20 + 300
    assert read(SCATTERED, pixels=100, macs=100, free=False) == [0, 1, 2, 3, 4, 5]


def test_only_what_is_needed_is_read_where_computing_is_dear() -> None:
    # reading all costs 6,000, the run 4,000 + 10, a gather 3,000 + 20 + 300
    assert read(SCATTERED, pixels=100, macs=1000) == [1, 3, 4]


def test_a_layer_that_needs_everything_selects_nothing() -> None:
    assert read(np.ones(3, dtype=np.bool_), pixels=1, macs=1e9) == [0, 1, 2]


BLOCKED = dataclasses.replace(UNIT, layout_number_ns=1, alignment=Alignment(4))


def test_what_is_read_fills_the_blocks_that_a_runtime_computes() -> None:
    live = np.array([False] * 6 + [True, False, True] + [False] * 7)
    # 16 channels of 100: all 1600, a run of three that fills a block of four 400 + 10
    wide = reads([live], dataclasses.replace(BLOCKED, layout_number_ns=0), pixels=1, macs=100)
    assert wide == [[5, 6, 7, 8]]


def test_a_block_as_wide_as_the_tensor_is_no_selection() -> None:
    live = np.array([True, False, False])
    assert reads([live], BLOCKED, pixels=1, macs=1e6) == [[0, 1, 2]]


def test_the_change_of_layout_is_paid_once_for_all_that_select() -> None:
    live = np.arange(8) < 4
    # a slice saves 4 x 16 - 10 - 4 x 5 = 34 of each layer, the layout costs 8 x 5 in all
    cost = dataclasses.replace(BLOCKED, is_slice_view=False)
    assert reads([live], cost, pixels=5, macs=16) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert reads([live, live], cost, pixels=5, macs=16) == [[0, 1, 2, 3]] * 2


def test_numbers_that_a_layer_reads_cost_beside_what_it_computes() -> None:
    live = np.array([True, False])
    cost = dataclasses.replace(UNIT, read_number_ns=2)
    # a channel costs 5 + 4 x 2 = 13, reading it alone 10 more: by its computation alone, less
    assert reads([live], UNIT, pixels=4, macs=5) == [[0, 1]]
    assert reads([live], cost, pixels=4, macs=5) == [[0]]


def test_zeros_are_placed_where_that_costs_less_than_computing_them() -> None:
    live = np.array([True, False, True, False])
    # placing 4 channels of 10 numbers costs 20 + 40
    assert is_placing_cheaper(live, SimpleNamespace(pixels=10, macs=31), UNIT)
    assert not is_placing_cheaper(live, SimpleNamespace(pixels=10, macs=30), UNIT)
