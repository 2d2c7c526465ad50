"""Magnitude masks rank as they say; zeros in place are those of the masks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.schemes import MaskScope, magnitude_mask, zero_smallest
from nncfx.schemes.masks import ranking
from nncfx.schemes.masks.magnitude_masks import MagnitudeMasks


def removed(masks: dict[str, Tensor]) -> int:
    return sum(int((~mask).sum()) for mask in masks.values())


def test_abs_ranks_all_weights_by_their_magnitude() -> None:
    weights = {"a": torch.tensor([1.0, -3.0, 2.0]), "b": torch.tensor([-30.0, 40.0])}
    masks = magnitude_mask(weights, 0.4)
    assert masks["a"].tolist() == [False, True, False]
    assert masks["b"].tolist() == [True, True]


def test_normed_abs_divides_by_the_norm_of_the_layer() -> None:
    weights = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.1, 0.0, 0.0])}
    # divided by the norms 5 and 0.1: three fifths, four fifths; one, nothing, nothing
    masks = magnitude_mask(weights, 0.6, normed=True)
    assert masks["a"].tolist() == [False, True]
    assert masks["b"].tolist() == [True, False, False]


def test_an_all_zero_weight_is_no_division_by_zero() -> None:
    masks = magnitude_mask({"a": torch.zeros(2), "b": torch.ones(2)}, 0.25, normed=True)
    assert removed(masks) == 1


@given(
    values=st.lists(st.integers(-2, 2), min_size=4, max_size=30),
    level=st.floats(0, 1, exclude_max=True),
    factor=st.sampled_from([0.5, 1.0, 4.0]),
)
def test_counts_are_exact_with_ties_and_scaling_keeps_the_mask(
    values: list[int], level: float, factor: float
) -> None:
    weight = torch.tensor(values, dtype=torch.float64)
    masks = magnitude_mask({"w": weight}, level)
    assert removed(masks) == int(level * len(values))
    scaled = magnitude_mask({"w": weight * factor}, level)
    assert torch.equal(masks["w"], scaled["w"])


def test_masks_in_turn_are_those_at_once() -> None:
    weights = {"a": torch.randn(30, 4), "b": torch.randn(7)}
    lazy = MagnitudeMasks(weights, 0.4, normed=True)
    kept = magnitude_mask(weights, 0.4, normed=True)
    assert list(lazy) == ["a", "b"]
    assert all(torch.equal(lazy[name], kept[name]) for name in weights)
    assert lazy["a"] is not lazy["a"]


@pytest.mark.parametrize("scope", ["global", "local"])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zeros_in_place_are_those_of_the_masks(
    scope: MaskScope, normed: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "_DIRECT", 100)
    generator = torch.Generator().manual_seed(0)
    weights = {
        "ties": (torch.randn(30, 20, generator=generator) * 2).round().to(dtype),
        "small": (torch.randn(7, generator=generator) / 100).to(dtype),
        "turned": torch.randn(25, 40, generator=generator).to(dtype).T,
    }
    masks = magnitude_mask(weights, 0.7, scope=scope, normed=normed)
    expected = {name: one * masks[name] for name, one in weights.items()}
    zero_smallest(weights, 0.7, scope=scope, normed=normed)
    assert all(torch.equal(one, expected[name]) for name, one in weights.items())
    assert sum(int((~one).sum()) for one in masks.values()) >= int(0.7 * 1607) - 2


def test_no_weight_is_zeroed_where_one_has_no_rank() -> None:
    weights = {"a": torch.ones(3), "b": torch.tensor([1.0, torch.nan])}
    with pytest.raises(CompressionError, match="'b' has NaN entries"):
        zero_smallest(weights, 0.5)
    assert weights["a"].tolist() == [1, 1, 1]
