"""Relative positions: Deep Compression's gaps with fillers, and runs without."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.codecs.sparse_index import (
    RunPositions,
    positions_of_gaps,
    to_gaps,
    to_runs,
    zeros_before,
)

POSITIONS = st.sets(st.integers(0, 500), max_size=60).map(lambda s: np.array(sorted(s), int))


@pytest.mark.parametrize(
    ("positions", "gaps", "filler"),
    [
        ([], [], []),
        ([0], [0], [False]),
        ([15], [15], [False]),  # a gap of 15 is a normal entry
        ([16], [15, 0], [True, False]),  # 16 zeros: a filler takes position 15
        ([31], [15, 15], [True, False]),
        ([32], [15, 15, 0], [True, True, False]),
        ([0, 16], [0, 15], [False, False]),
        ([0, 17], [0, 15, 0], [False, True, False]),
        ([0, 1, 2, 6, 8], [0, 0, 0, 3, 1], [False] * 5),  # the published toy example, corrected
    ],
)
def test_gaps_follow_the_filler_rule(
    positions: list[int], gaps: list[int], filler: list[bool]
) -> None:
    found = to_gaps(np.array(positions, dtype=np.int64), 15)
    assert (found.gaps.tolist(), found.filler.tolist()) == (gaps, filler)


@given(POSITIONS, st.integers(1, 70))
def test_gaps_without_their_fillers_give_the_positions(positions: np.ndarray, limit: int) -> None:
    gaps, filler = to_gaps(positions, limit)
    assert gaps.max(initial=0) <= limit
    np.testing.assert_array_equal(positions_of_gaps(gaps, 501)[~filler], positions)


def positions_of(runs: list[int] | np.ndarray, limit: int, size: int) -> list[int]:
    found = RunPositions(np.array(runs, dtype=np.uint16), limit, size)
    positions = [position for chunk in found for position in chunk.tolist()]
    assert len(positions) == found.count
    return positions


@pytest.mark.parametrize(
    ("zeros", "runs"), [(0, [0]), (2, [2]), (3, [3, 0]), (5, [3, 2]), (6, [3, 3, 0])]
)
def test_the_limit_of_a_run_stands_for_zeros_without_a_value(zeros: int, runs: list[int]) -> None:
    assert to_runs(np.array([zeros]), 3).tolist() == runs


@given(POSITIONS, st.integers(1, 70))
def test_runs_give_the_positions(positions: np.ndarray, limit: int) -> None:
    runs = to_runs(zeros_before(positions), limit)
    assert positions_of(runs, limit, 501) == positions.tolist()


def test_runs_longer_than_a_chunk_give_the_positions() -> None:
    positions = np.flatnonzero(np.random.default_rng(0).random(1_500_000) < 0.4)
    runs = to_runs(zeros_before(positions), 7)
    assert positions_of(runs, 7, 1_500_000) == positions.tolist()


def test_an_entry_outside_the_tensor_is_refused() -> None:
    with pytest.raises(StorageError, match="reaches position 4 in a tensor of 4"):
        positions_of_gaps(np.array([1, 2]), 4)


def test_runs_outside_the_tensor_are_refused() -> None:
    with pytest.raises(StorageError, match="reaches position"):
        positions_of([3, 3], 3, 5)


def test_a_run_beyond_its_limit_is_refused() -> None:
    with pytest.raises(StorageError, match="exceeds its limit of 3"):
        positions_of([4], 3, 10)
