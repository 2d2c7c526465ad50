"""The cheapest way to read channels, by hand-made costs."""

from types import SimpleNamespace

import numpy as np
import pytest

from nncfx.errors import ArgumentError
from nncfx.export import COSTS, SelectionCost
from nncfx.export.selection_cost import cheapest_positions, is_placing_cheaper, selection_cost_of

UNIT = SelectionCost(
    slice_ns=10,
    slice_number_ns=1,
    is_slice_view=True,
    gather_ns=20,
    gather_number_ns=1,
    mac_ns=1,
)
SCATTERED = np.array([False, True, False, True, True, False])


def read(live: np.ndarray, *, pixels: int, macs: float, free: bool = True) -> list[int]:
    reading = SimpleNamespace(pixels=pixels, macs=macs, is_sliced_free=free)
    return cheapest_positions(live, reading, UNIT).tolist()


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


def test_a_runtime_without_known_costs_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(ArgumentError, match="Use one of onnxruntime, torch"):
        selection_cost_of("abacus")
    assert selection_cost_of("torch") is COSTS["torch"]
    assert selection_cost_of(UNIT) is UNIT


def test_zeros_are_placed_where_that_costs_less_than_computing_them() -> None:
    live = np.array([True, False, True, False])
    # placing 4 channels of 10 numbers costs 20 + 40
    assert is_placing_cheaper(live, SimpleNamespace(pixels=10, macs=31), UNIT)
    assert not is_placing_cheaper(live, SimpleNamespace(pixels=10, macs=30), UNIT)
