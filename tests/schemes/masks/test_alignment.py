"""Widths are brought to what a runtime likes, without going beyond the level."""

import dataclasses
import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from nncfx.schemes import keep_groups
from nncfx.schemes.masks.alignment import aligned_count, resolve_alignment
from nncfx.targets import Alignment

CPU = resolve_alignment("onnxruntime")


def counts(scores: list[torch.Tensor], level: float, scope: str = "global") -> list[int]:
    masks = keep_groups(scores, level, align=CPU, scope=scope)  # type: ignore[arg-type] (by name)
    return [int(mask.sum()) for mask in masks]


@given(
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=5),
    level=st.floats(0, 0.99),
    align=st.sampled_from([CPU, Alignment(8), Alignment(3)]),
    seed=st.integers(0, 99),
)
def test_never_more_goes_than_without_alignment(
    sizes: list[int], level: float, align: Alignment, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.rand(size, generator=generator) for size in sizes]
    gone = math.floor(level * sum(sizes))
    together = [int(mask.sum()) for mask in keep_groups(scores, level, align=align)]
    each = [int(mask.sum()) for mask in keep_groups(scores, level, align=align, scope="local")]
    assert sum(sizes) - sum(together) <= gone
    assert all(size - n <= math.floor(level * size) for n, size in zip(each, sizes, strict=True))
    least = align.step or align.multiple
    for n, size in zip([*together, *each], sizes * 2, strict=True):
        assert n == size or n % least == 0


def test_sets_make_up_for_each_other_in_one_ranking() -> None:
    scores = [torch.arange(64.0), torch.arange(64.0)]
    found = [int(mask.sum()) for mask in keep_groups(scores, 0.4, align=32)]
    assert found == [64, 32]  # of 128, 51 may go


def test_widths_are_second_best_where_the_best_would_keep_too_much() -> None:
    assert counts([torch.rand(64)], 0.25) == [48]
    assert counts([torch.rand(64)], 0.35) == [44]  # 48 would lose 16 of 22


def test_every_layer_is_rounded_down_on_demand() -> None:
    down = dataclasses.replace(CPU, down=True)
    masks = keep_groups([torch.rand(64), torch.rand(60)], 0.4, align=down, scope="local")
    assert [int(mask.sum()) for mask in masks] == [32, 32]


def test_layers_that_lose_nothing_keep_an_odd_width() -> None:
    assert counts([torch.rand(37)], 0.0) == [37]


def test_a_group_of_many_entries_counts_as_wide_as_it_is() -> None:
    assert aligned_count(7, 12, CPU, each=64) == 7


def test_the_minimum_holds() -> None:
    assert aligned_count(18, 64, Alignment(16), minimum=33) == 48
