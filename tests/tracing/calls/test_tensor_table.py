"""Promises of nncfx.tracing.calls.tensor_table."""

import gc
import weakref

import torch

from nncfx.tracing.calls.tensor_table import TensorTable


def test_equal_tensors_have_values_of_their_own() -> None:
    table = TensorTable[int]()
    one, other = torch.zeros(2), torch.zeros(2)
    table[one], table[other] = 1, 2
    assert (table.get(one), table.get(other)) == (1, 2)
    assert table.get(torch.zeros(2)) is None


def test_no_tensor_is_kept_alive() -> None:
    table = TensorTable[int]()
    one = torch.zeros(2)
    died = weakref.ref(one)
    table[one] = 1
    del one
    gc.collect()
    assert died() is None


def test_a_tensor_with_the_address_of_a_dead_one_does_not_get_its_value() -> None:
    table = TensorTable[int]()
    reused = 0
    for _ in range(200):
        one = torch.zeros(2)
        table[one] = 1
        key = id(one)
        del one
        other = torch.zeros(2)
        reused += id(other) == key
        assert table.get(other) is None
        assert other not in table
    assert reused  # else this has shown nothing


def test_entries_of_dead_tensors_do_not_add_up() -> None:
    table = TensorTable[int]()
    kept = [torch.zeros(1) for _ in range(100)]
    for number, one in enumerate(kept):
        table[one] = number
    for _ in range(50):
        batch = [torch.zeros(1) for _ in range(400)]
        for one in batch:
            table[one] = -1
    # 20,100 were put in, at most 500 live at a time; a sweep comes at 1,024 or twice what lived
    assert len(table) <= 1025
    assert [table.get(one) for one in kept] == list(range(100))


def test_what_only_a_view_keeps_alive_is_still_known() -> None:
    table = TensorTable[int]()
    base = torch.zeros(4)
    view = base[:2]
    table[base] = 7
    del base
    gc.collect()
    owner = view._base
    assert owner is not None
    assert table.get(owner) == 7
