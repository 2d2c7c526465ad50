"""Widths are brought to what a runtime likes, within the budget."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from nncfx.schemes import keep_groups
from nncfx.schemes.alignment import ALIGNMENTS, Alignment, aligned_counts

CPU = ALIGNMENTS["onnxruntime"]


def counts(scores: list[torch.Tensor], level: float, scope: str = "global") -> list[int]:
    masks = keep_groups(scores, level, align=CPU, scope=scope)  # type: ignore[arg-type] (by name)
    return [int(mask.sum()) for mask in masks]


@given(
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=5),
    level=st.floats(0, 0.99),
    seed=st.integers(0, 99),
)
def test_no_more_stay_than_without_alignment_but_for_the_narrowest_width(
    sizes: list[int], level: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.rand(size, generator=generator) for size in sizes]
    plain = [int(mask.sum()) for mask in keep_groups(scores, level)]
    found = counts(scores, level)
    assert sum(found) <= sum(max(n, min(size, 4)) for n, size in zip(plain, sizes, strict=True))
    assert all(CPU.allows(n) or n == size for n, size in zip(found, sizes, strict=True))


def test_every_layer_is_rounded_down() -> None:
    assert counts([torch.rand(64), torch.rand(60)], 0.4, "local") == [32, 32]


def test_what_rounding_leaves_lifts_narrow_layers_to_the_multiple() -> None:
    assert aligned_counts([30, 13, 12], [64] * 3, [1] * 3, CPU, 1) == [16, 16, 12 + 4]
    assert aligned_counts([17, 13, 12], [64] * 3, [1] * 3, CPU, 1) == [16, 12, 12]


def test_layers_that_lose_nothing_keep_an_odd_width() -> None:
    assert counts([torch.rand(37)], 0.0) == [37]


def test_a_group_of_many_entries_counts_as_wide_as_it_is() -> None:
    assert aligned_counts([7], [12], [64], CPU, 1) == [7]


def test_the_minimum_holds() -> None:
    assert aligned_counts([18], [40], [1], Alignment(16), 17) == [32]
