"""Criteria are the norms that their names say."""

import pytest
import torch

from nncfx.errors import ArgumentError
from nncfx.schemes.criteria import CRITERIA, resolve_criterion

BLOCKS = torch.tensor([[3.0, -4.0, 0.0, 0.0], [-1.0, 1.0, 1.0, -1.0]])
BY_HAND = {
    "l1norm": [7.0, 4.0],
    "l2norm": [5.0, 2.0],
    "max": [4.0, 1.0],
    "mean": [1.75, 1.0],
    "min": [0.0, 1.0],
    "scaled_l2norm": [1.25, 0.5],
    "sum": [7.0, 4.0],
}


@pytest.mark.parametrize("name", sorted(CRITERIA))
def test_each_criterion_matches_the_score_by_hand(name: str) -> None:
    assert resolve_criterion(name)(BLOCKS).tolist() == BY_HAND[name]


def test_a_function_is_its_own_criterion() -> None:
    assert resolve_criterion(torch.numel) is torch.numel


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'l2norm'"):
        resolve_criterion("l2nrm")
