"""Which batches choose, and which judge what was chosen."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

from nncfx.compressor.evaluation.validation_data import Validation, divided, total_examples

ROWS = torch.arange(70)


def seen(batches: object) -> list[int]:
    return [int(row) for inputs, _ in batches for row in inputs]  # type: ignore[attr-defined] # any iterable


def parts(found: Validation) -> tuple[list[int], list[int]]:
    return seen(found.chooses), seen(found.judges)


def test_every_second_batch_of_a_list_judges() -> None:
    batches = [(ROWS[i : i + 10], ROWS[i : i + 10]) for i in range(0, 70, 10)]
    found = divided(batches, None, 0.5, least=1)
    assert found.held_out
    assert [int(x[0]) for x, _ in found.judges] == [10, 30, 50]
    assert [int(x[0]) for x, _ in found.chooses] == [0, 20, 40, 60]
    assert found.header == {"held out": 0.5}


@pytest.mark.parametrize("share", [0.1, 0.2, 1 / 3, 0.5, 0.7])
def test_the_batches_that_judge_are_spread_over_all(share: float) -> None:
    batches = [(ROWS[:1] + i, ROWS[:1]) for i in range(60)]
    found = divided(batches, None, share, least=1)
    judging = [int(x) for x, _ in found.judges]
    assert len(judging) == int(60 * share + 1e-9)
    assert {after - before for before, after in pairwise(judging)} <= {
        int(1 / share + 1e-9),
        int(1 / share + 1e-9) + 1,
    }


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_a_loader_is_divided_by_its_dataset_even_if_it_shuffles(
    *, shuffle: bool, drop_last: bool
) -> None:
    loader = DataLoader(
        TensorDataset(ROWS[:65], ROWS[:65]), batch_size=10, shuffle=shuffle, drop_last=drop_last
    )
    found = divided(loader, None, 0.5, least=1)
    chooses, judges = parts(found)
    assert found.held_out
    assert not set(chooses) & set(judges)
    assert len(chooses + judges) == (60 if drop_last else 65)
    assert parts(found) == (chooses, judges)  # the same in every pass
    # a metric that divides by the size of the dataset still means something
    assert len(found.judges.dataset) == len(judges) == total_examples(found.judges)  # type: ignore[attr-defined] # a loader


class Stream(IterableDataset):  # type: ignore[type-arg] # of pairs
    """Rows whose number nobody knows."""

    def __init__(self, *, restless: bool) -> None:
        self._restless, self._passes = restless, 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        self._passes += 1
        order = ROWS.roll(self._passes) if self._restless else ROWS
        for i in range(0, 70, 10):
            yield order[i : i + 10], order[i : i + 10]


@pytest.mark.parametrize("loaded", [True, False])
def test_a_stream_is_divided_by_the_order_of_its_batches(*, loaded: bool) -> None:
    stream = Stream(restless=False)
    found = divided(DataLoader(stream, batch_size=None) if loaded else stream, None, 0.5, least=1)
    chooses, judges = parts(found)
    assert found.held_out
    assert sorted(chooses + judges) == ROWS.tolist()
    assert judges[:10] == list(range(10, 20))


def test_a_stream_without_order_is_not_divided_and_this_is_said() -> None:
    stream = Stream(restless=True)
    found = divided(stream, None, 0.5, least=1)
    assert not found.held_out
    assert found.chooses is found.judges is stream
    assert "another order every time" in found.note
    assert found.header == {}


@pytest.mark.parametrize(("least", "divides"), [(30, True), (31, False)])
def test_too_few_examples_are_not_divided_and_this_is_said(least: int, *, divides: bool) -> None:
    batches = [(ROWS[i : i + 10], ROWS[i : i + 10]) for i in range(0, 70, 10)]
    found = divided(batches, None, 0.5, least=least)
    assert found.held_out is divides
    assert ("40 and 30 examples, and each needs 31" in found.note) is not divides


def test_a_testloader_judges_and_all_else_chooses() -> None:
    val, test = [(ROWS, ROWS)], [(ROWS + 100, ROWS)]
    found = divided(val, test, 0.5, least=1)
    assert (found.chooses, found.judges, found.data) == (val, test, "testloader")
    assert found.held_out
    assert not found.header


DATA = TensorDataset(ROWS, ROWS)
WHOLE = DataLoader(DATA, batch_size=10)


@pytest.mark.parametrize("val", [[(ROWS, ROWS)], WHOLE, Stream(restless=False)])
def test_a_testloader_that_is_the_valloader_holds_nothing_out(val: Any) -> None:  # noqa: ANN401
    found = divided(val, val, 0.5, least=1)
    assert (found.chooses, found.judges, found.held_out) == (val, val, False)
    assert "chose it, since testloader gives the data of valloader; its loss" in found.note


def test_loaders_of_one_dataset_hold_out_only_what_the_other_leaves() -> None:
    assert not divided(WHOLE, DataLoader(DATA, batch_size=5, shuffle=True), 0.5, least=1).held_out
    half, rest = (
        DataLoader(DATA, sampler=SubsetRandomSampler(part)) for part in (range(35), range(35, 70))
    )
    assert divided(half, rest, 0.5, least=1).held_out


def test_nothing_is_held_out_where_nothing_is_asked_for() -> None:
    found = divided([(ROWS, ROWS)] * 4, None, 0.0, least=1)
    assert not found.held_out
    assert "held_out is 0" in found.note
