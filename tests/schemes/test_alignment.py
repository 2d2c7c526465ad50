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
    budget = sum(int(mask.sum()) for mask in keep_groups(scores, level))
    found = counts(scores, level)
    narrowest = sum(min(size, 4) for size in sizes)
    assert sum(found) <= max(budget, narrowest)
    assert all(CPU.allows(n) or n == size for n, size in zip(found, sizes, strict=True))


def test_the_best_step_gets_what_rounding_left() -> None:
    # 35 and 29 would stay; rounded down 32 and 16, so that 16 are left for one step
    first = torch.cat([torch.full((35,), 5.0), torch.full((29,), 1.0)])
    second = torch.cat([torch.full((29,), 4.0), torch.full((35,), 1.0)])
    assert counts([first, second], 0.5) == [32, 32]
    assert counts([torch.cat([first[:48] * 0 + 5, first[48:]]), second], 0.5) == [48, 16]


def test_each_layer_alone_is_rounded_down() -> None:
    assert counts([torch.rand(64), torch.rand(60)], 0.4, "local") == [32, 32]


def test_layers_that_lose_nothing_keep_an_odd_width() -> None:
    assert counts([torch.rand(37)], 0.0) == [37]


def test_a_group_of_many_entries_counts_as_wide_as_it_is() -> None:
    heads = [torch.arange(12.0)]
    found = aligned_counts(heads, [7], CPU, minimum=1, entries=[64], shares=True)
    assert found == [7]


def test_the_minimum_holds() -> None:
    scores = [torch.arange(40.0)]
    found = aligned_counts(scores, [18], Alignment(16), minimum=17, entries=[1], shares=False)
    assert found == [32]
