"""Tables of the context coder: whole numbers that stand for logarithms."""

import math

import numpy as np
import pytest

from nncfx.storage.context_coding.tables import LEVELS, level_means, level_odds, tables


def test_squash_is_the_logistic_function_rounded_and_kept_off_its_ends() -> None:
    exact = [65536 / (1 + math.exp(-t / 256)) for t in range(-2048, 2048)]
    expected = [min(max(round(one), 24), 65512) for one in exact]
    assert list(tables().squash) == expected


def test_stretch_undoes_squash_within_a_step_of_its_argument() -> None:
    squash, stretch = tables().squash, tables().stretch
    for share in range(8, 4088):
        assert abs(squash[stretch[share] + 2048] - (16 * share + 8)) <= 65


@pytest.mark.parametrize(("mean", "level"), [(0, 0), (1, 1), (2, 4), (16, 13), (4095, 36)])
def test_levels_are_three_per_octave(mean: int, level: int) -> None:
    assert tables().level[mean] == level


def test_the_mean_of_a_level_lies_in_it() -> None:
    for level in range(13, 36):
        assert tables().level[level_means()[level] // 16] in {level - 1, level}


def test_odds_of_a_level_give_a_geometric_distribution_of_its_mean() -> None:
    kept, more = level_odds()[16:32].T / 2**20
    means = np.array(level_means()[16:32]) / 256
    assert np.allclose(kept / (1 - more), means, rtol=0.02)
    assert len(level_odds()) == LEVELS
