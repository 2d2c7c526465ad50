"""Code lengths of integers: an estimate of the bits that an adaptive coder spends on each."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

_CONTEXTS: Final = 8
_PRIOR: Final = 4.0
"""How many integers of the whole tensor each context counts before its own first integer."""
_LEAST: Final = 0.5
_TINY: Final = 1e-9


@dataclass(frozen=True, eq=False)
class CodeLengths:
    """Bits of each integer in each context.

    Attributes:
        contexts: o x i, int64.
        bits: contexts x (2 * largest + 1): column `largest + k` is for the integer k.
        largest: The largest magnitude that has a code length.
    """

    contexts: Tensor
    bits: Tensor
    largest: int

    def of(self, integers: Tensor, contexts: Tensor) -> Tensor:
        """Return the bits of `integers`, whole floats or ints within `largest`, as float32."""
        return self.bits[contexts, integers.long() + self.largest]

    @classmethod
    def fitted(cls, integers: Tensor, contexts: Tensor, largest: int) -> "CodeLengths":
        """Return the code lengths of a coder trained on `integers`, o x i."""
        counts = _counts(integers, contexts, largest)
        prior = counts.sum(0) + _LEAST
        counts += _PRIOR * prior / prior.sum()
        return cls(contexts, -(counts / counts.sum(1, keepdim=True)).log2().float(), largest)


def neighbour_contexts(numbers: Tensor) -> Tensor:
    """Return the context of each number: the average magnitude in its row and column.

    This is about as much information as a coder has that adapts to rows and columns.

    Args:
        numbers: o x i, in any unit.

    Returns:
        o x i, in [0, 8), equally many of each.
    """
    size = numbers.abs()
    rows, columns = size.mean(1, keepdim=True), size.mean(0, keepdim=True)
    expected = ((rows + _TINY) * (columns + _TINY)).flatten()
    rank = torch.empty_like(expected, dtype=torch.int64)
    rank[expected.argsort(stable=True)] = torch.arange(expected.numel(), device=rank.device)
    return (rank * _CONTEXTS // max(1, rank.numel())).view_as(numbers)


def estimated_bits(integers: Tensor) -> float:
    """Return the approximate bits that an adaptive coder spends on `integers`, of any shape.

    >>> estimated_bits(torch.zeros(64))
    0.0
    """
    rows = integers.reshape(len(integers), -1) if integers.ndim > 1 else integers.reshape(1, -1)
    if not rows.numel():
        return 0.0
    counts = _counts(rows, neighbour_contexts(rows.float()), int(rows.abs().max()))
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    nats = -torch.special.xlogy(counts, shares).sum()
    return float(nats / torch.log(torch.tensor(2.0, dtype=torch.float32, device="cpu"))) + 0.0


def _counts(integers: Tensor, contexts: Tensor, largest: int) -> Tensor:
    width = 2 * largest + 1
    cells = (contexts * width + integers.long() + largest).flatten()
    found = torch.bincount(cells, minlength=_CONTEXTS * width)
    return found.view(_CONTEXTS, width).double()
