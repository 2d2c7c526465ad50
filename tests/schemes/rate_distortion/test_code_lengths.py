"""Estimated code lengths are those of the counts, and contexts make them shorter."""

import math

import torch

from nncfx.schemes.rate_distortion.code_lengths import (
    CodeLengths,
    estimated_bits,
    neighbour_contexts,
)


def test_alike_rows_take_their_entropy() -> None:
    # every row and column, and so every context, has each of four integers equally often
    row = torch.tensor([-1, 0, 1, 2]).repeat(4)
    integers = torch.stack([row.roll(shift) for shift in range(16)])
    assert math.isclose(estimated_bits(integers), 2 * 256, rel_tol=1e-6)


def test_rows_of_different_spread_take_less_than_their_mixture() -> None:
    generator = torch.Generator().manual_seed(0)
    spread = torch.logspace(-1, 1, 64).unsqueeze(1)
    integers = (torch.randn(64, 200, generator=generator) * spread * 3).round()
    counts = torch.unique(integers, return_counts=True)[1].double()
    order_0 = float(-(counts * (counts / counts.sum()).log2()).sum())
    assert estimated_bits(integers) < 0.85 * order_0


def test_lengths_satisfy_krafts_inequality() -> None:
    integers = torch.randint(-3, 4, (20, 30), generator=torch.Generator().manual_seed(0)).float()
    lengths = CodeLengths.fitted(integers, neighbour_contexts(integers), 5)
    assert (2.0**-lengths.bits).sum(1).max() <= 1 + 1e-5
    assert lengths.of(torch.tensor([0.0]), torch.tensor([0])) == lengths.bits[0, 5]


def test_contexts_rank_by_row_and_column() -> None:
    numbers = torch.outer(torch.tensor([1.0, 10.0]), torch.tensor([1.0, 3.0, 30.0, 300.0]))
    assert neighbour_contexts(numbers).tolist() == [[0, 1, 3, 5], [2, 4, 6, 7]]
