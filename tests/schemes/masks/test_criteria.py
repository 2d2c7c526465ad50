"""Criteria are the norms that their names say."""

import pytest
import torch

from nncfx.errors import ArgumentError
from nncfx.schemes.masks.criteria import CRITERIA, RandomScores, lamp, resolve_criterion

BLOCKS = torch.tensor([[3.0, -4.0, 0.0, 0.0], [-1.0, 1.0, 1.0, -1.0]])
BY_HAND = {
    "geometric_median": [43**0.5, 43**0.5],
    "lamp": [1.0, 4 / 29],
    "l1norm": [7.0, 4.0],
    "l2norm": [5.0, 2.0],
    "max": [4.0, 1.0],
    "mean": [1.75, 1.0],
    "min": [0.0, 1.0],
    "scaled_l2norm": [1.25, 0.5],
    "sum": [7.0, 4.0],
}


@pytest.mark.parametrize("name", sorted(CRITERIA.keys() - {"random"}))
def test_each_criterion_matches_the_score_by_hand(name: str) -> None:
    assert resolve_criterion(name)(BLOCKS).tolist() == pytest.approx(BY_HAND[name])


def test_a_function_is_its_own_criterion() -> None:
    assert resolve_criterion(torch.numel) is torch.numel


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'l2norm'"):
        resolve_criterion("l2nrm")


def test_lamp_gives_equal_blocks_equal_scores() -> None:
    assert lamp(torch.tensor([[1.0], [-1.0], [2.0]])).tolist() == pytest.approx([1 / 6, 1 / 6, 1])


def test_lamp_of_zeros_is_zero() -> None:
    assert lamp(torch.zeros(3, 2)).tolist() == [0.0, 0.0, 0.0]


def test_random_scores_follow_the_seed_and_not_the_weights() -> None:
    assert torch.equal(RandomScores(3)(BLOCKS), RandomScores(3)(-2 * BLOCKS))
    assert not torch.equal(RandomScores(3)(BLOCKS), RandomScores(4)(BLOCKS))
