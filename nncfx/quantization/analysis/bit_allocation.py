"""Choose the widths of many tensors under one budget by an integer program."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from nncfx.errors import ArgumentError, SearchError, needing

WidthTable: TypeAlias = Sequence[Mapping[int, float]]
"""For each place that has a width, a number for each choice of bits."""

_LARGEST: Final = 1e4
"""Harms are scaled to this maximum, since the solver's tolerance is 1e-6 in their unit."""


def allocate_bits(
    choices: Sequence[Sequence[int]], harms: WidthTable, costs: WidthTable, budget: float
) -> tuple[int, ...]:
    """Return the bits with the least total harm whose total cost is within `budget`.

    An integer program with one binary variable per place and choice is solved exactly.

    Args:
        choices: The bits that each place can have.
        harms: The harm of each choice; harms add up over places.
        costs: The cost of each choice.
        budget: The largest total cost.

    Raises:
        ArgumentError: a choice has no finite harm or cost.
        SearchError: all choices exceed the budget.
        MissingExtraError: SciPy is not installed.

    >>> allocate_bits([(8, 4), (8, 4)], [{8: 0, 4: 5}, {8: 0, 4: 1}],
    ...               [{8: 8, 4: 4}, {8: 8, 4: 4}], 12)
    (8, 4)
    """
    with needing("scipy", "search", "the integer program"):
        from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]  # SciPy has no types
        from scipy.sparse import csr_array  # type: ignore[import-untyped]  # as above
    pairs = [(place, bits) for place, each in enumerate(choices) for bits in each]
    for what, table in (("harms", harms), ("costs", costs)):
        for place, bits in pairs:
            value = table[place].get(bits, math.nan) if place < len(table) else math.nan
            if not math.isfinite(value):
                raise ArgumentError(
                    f"The {what} have no finite number for {bits} bits at place {place}. Give one "
                    "for every choice."
                )
    unit = max((abs(harms[place][bits]) for place, bits in pairs), default=0) / _LARGEST or 1
    columns = range(len(pairs))
    rows = [place for place, _ in pairs]
    one_each = csr_array(([1.0] * len(pairs), (rows, columns)), shape=(len(choices), len(pairs)))
    found = milp(
        [harms[place][bits] / unit for place, bits in pairs],
        integrality=[1] * len(pairs),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint([[costs[place][bits] for place, bits in pairs]], ub=budget),
        ],
        options={"mip_rel_gap": 0},
    )
    if found.x is None:
        least = sum(min(one.values()) for one in costs)
        raise SearchError(
            f"No choice of bits costs at most {budget:g}; the cheapest costs {least:g}. "
            "Allow more, or fewer bits."
        )
    return tuple(bits for (_, bits), taken in zip(pairs, found.x, strict=True) if taken > 1 / 2)
