"""The largest of several tensors are those that a sort finds, however they are bracketed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nncfx.schemes.masks import ranking

VALUES = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=40)


def by_sorting(parts: list[torch.Tensor], count: int) -> list[torch.Tensor]:
    flat = torch.cat(parts)
    mask = torch.zeros(flat.numel(), dtype=torch.bool)
    mask[flat.sort(descending=True, stable=True).indices[: max(count, 0)]] = True
    return list(mask.split([part.numel() for part in parts]))


def check(parts: list[torch.Tensor], count: int) -> None:
    found = [one.mask() for one in ranking.ranked_together(parts, count)]
    expected = by_sorting(parts, count)
    assert [m.tolist() for m in found] == [m.tolist() for m in expected]


@given(rows=st.lists(VALUES, min_size=1, max_size=4), count=st.integers(-1, 170))
def test_a_direct_ranking_is_the_sorted_one(rows: list[list[float]], count: int) -> None:
    check([torch.tensor(row) for row in rows], count)


@given(
    rows=st.lists(VALUES, min_size=1, max_size=4),
    count=st.integers(0, 170),
    sample=st.integers(1, 30),
)
def test_a_bracketed_ranking_is_the_sorted_one(
    rows: list[list[float]], count: int, sample: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_DIRECT", 4)
        patch.setattr(ranking, "_SAMPLE", sample)
        check([torch.tensor(row) for row in rows], count)


@pytest.mark.parametrize("order", ["rising", "falling", "periodic"])
def test_a_misleading_sample_costs_time_only(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_DIRECT", 1000)
    monkeypatch.setattr(ranking, "_SAMPLE", 500)
    values = torch.arange(100_000.0)
    parts = {
        "rising": [values],
        "falling": [values.flip(0)],
        # every entry that the sample sees is the largest of its neighbours
        "periodic": [torch.where(values % 200 == 0, values + 1e6, values)],
    }[order]
    for count in (1, 400, 50_000, 99_999):
        check(parts, count)


def test_numbers_that_a_half_cannot_hold_still_rank() -> None:
    parts = [torch.tensor([1.0, 2.0], dtype=torch.float16), torch.tensor([1.0001, 0.5])]
    assert [one.mask().tolist() for one in ranking.ranked_together(parts, 2)] == [
        [False, True],
        [True, False],
    ]
