"""Bits for many tensors under one budget, by integer program."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import ArgumentError, SearchError
from nncfx.quantization.analysis.bit_allocation import allocate_bits

NUMBERS = st.floats(0, 10).map(lambda one: round(one, 2))


@given(
    st.lists(
        st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=3), min_size=1, max_size=4
    ),
    st.floats(0, 30),
)
@settings(max_examples=40)
def test_the_integer_program_finds_what_trying_all_finds(
    numbers: list[list[tuple[float, float]]], budget: float
) -> None:
    choices = tuple(tuple(range(8, 8 - len(one), -1)) for one in numbers)
    harm = [
        dict(zip(c, (a for a, _ in n), strict=True)) for c, n in zip(choices, numbers, strict=True)
    ]
    cost = [
        dict(zip(c, (b for _, b in n), strict=True)) for c, n in zip(choices, numbers, strict=True)
    ]

    def total(table: list[dict[int, float]], bits: tuple[int, ...]) -> float:
        return sum(one[few] for one, few in zip(table, bits, strict=True))

    all_of_them = list(itertools.product(*choices))
    # the solver keeps constraints to 1e-6 only; no sum lies so near the budget without being it
    feasible = [one for one in all_of_them if total(cost, one) <= budget]
    if any(abs(total(cost, one) - budget) < 1e-4 for one in all_of_them):
        return
    if not feasible:
        with pytest.raises(SearchError, match="No choice of bits costs at most"):
            allocate_bits(choices, harm, cost, budget)
        return
    found = allocate_bits(choices, harm, cost, budget)
    assert total(cost, found) <= budget + 1e-6
    best = min(total(harm, one) for one in feasible)
    assert total(harm, found) == pytest.approx(best, abs=1e-6)


def test_the_smallest_of_harms_decide_too() -> None:
    # a share of 1e-8 of the outputs' energy is the sort of number that rounding to 8 bits costs
    harms = [{8: 0.0, 4: 3e-8}, {8: 0.0, 4: 1e-8}]
    costs = [{8: 8.0, 4: 4.0}, {8: 8.0, 4: 4.0}]
    assert allocate_bits([(8, 4), (8, 4)], harms, costs, 12) == (8, 4)


def test_a_table_without_a_number_for_a_choice_is_refused() -> None:
    costs = [{8: 8.0, 4: 4.0}]
    with pytest.raises(ArgumentError, match="harms have no finite number for 4 bits at place 0"):
        allocate_bits(((8, 4),), [{8: 0.0, 4: float("nan")}], costs, 8)
    with pytest.raises(ArgumentError, match="costs have no finite number for 8 bits at place 1"):
        allocate_bits(((8, 4), (8, 4)), [costs[0]] * 2, costs, 8)
