"""The process is held, and let go."""

import os
import sys

import pytest

from nncfx.errors import ArgumentError
from nncfx.runtimes import pinned

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can hold a process")


def test_the_block_runs_there_and_what_was_comes_back() -> None:
    before = os.sched_getaffinity(0)
    one = {min(before)}
    with pinned(one):
        assert os.sched_getaffinity(0) == one
    assert os.sched_getaffinity(0) == before


def test_what_was_comes_back_after_a_failure() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(ZeroDivisionError), pinned({min(before)}):
        _ = 1 / 0
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("cpus", [set(), {100_000}])
def test_processors_that_are_not_there_are_refused(cpus: set[int]) -> None:
    with pytest.raises(ArgumentError, match="this process may run on"), pinned(cpus):
        pass
