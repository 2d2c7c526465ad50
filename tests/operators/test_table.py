"""Every row says all that the library asks of an operation."""

from collections import Counter
from typing import get_args

import pytest

from nncfx.graph.macs import mac_rule
from nncfx.operators import KINDS, OTHER, ROWS, Operator
from nncfx.operators.operator import ROLES, Work
from nncfx.tracing.hooks.spelled_functions import is_known_function


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.name)
def test_a_row_is_whole(one: Operator) -> None:
    assert one.kind in KINDS | {OTHER}
    assert one.work in get_args(Work)
    assert set(one.ports) <= ROLES
    assert one.macs == "none" or all(mac_rule.find(function) for function in one.functions)
    assert one.kind != OTHER or one.in_float, "neither a kind that targets describe nor a reason"
    assert any(map(is_known_function, one.functions)), "torch has no such function"


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.name)
def test_what_sums_products_counts_them(one: Operator) -> None:
    sums = one.work in ("contraction", "attention", "recurrence")
    # torch takes this one apart before it is counted
    assert (one.macs != "none") == (sums and one.name != "multi_head_attention_forward")


def test_a_function_and_a_name_are_of_one_row() -> None:
    functions = Counter(function for one in ROWS for function in one.functions)
    names = Counter(one.name for one in ROWS)
    assert {one for one, count in (functions + names).items() if count > 2} == set()
    assert max(functions.values()) == max(names.values()) == 1
