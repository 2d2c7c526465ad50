"""Zeros in place are those of the masks, and masks are made when they are asked for."""

import pytest
import torch

from nncfx.errors import CompressionError
from nncfx.schemes import MaskScope, magnitude_mask, zero_smallest
from nncfx.schemes.masks import ranking
from nncfx.schemes.masks.magnitude_masks import MagnitudeMasks


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
