"""Grids on which a set of weights takes a given number of bits, and the bits as a loss."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.float64 import in_float64
from nncfx.narration import tracked
from nncfx.pieces import in_pieces
from nncfx.schemes.rate_distortion.rounding import short_step
from nncfx.sorting import ascending

DENSE_BITS: Final = 32
"""Bits of an uncompressed weight."""
TABLE: Final = 64
"""Number of magnitudes with code lengths of their own; larger ones have a geometric tail."""
_PASSES: Final = 3
_HALVINGS: Final = 24
_CLOSE: Final = 0.002
_LEAST: Final = 0.5
_WIDEST: Final = 0.5
"""The most steps that thresholds move: otherwise rare integers would get ever rarer."""
_FURTHEST: Final = 1.01
"""The fewest steps to the largest magnitude: beyond the threshold of 1."""
_SHARES: Final = (-90.0, 0.0)
"""Binary logarithms of the share of a layer's squares that a bit can be worth."""
_MOST_STEPS: Final = 1 << 16
"""The magnitudes of a grid: their multiples of a step of 8 bits are exact in float32."""
_DIGITS: Final = 24
"""Binary digits of a float32."""
_FEW: Final = 1 << 12
_MANY: Final = 1 << 14
"""From this number of entries on, a table of cells is used."""
_CELLS: Final = 16
"""Cells per step; a power of 2, so that the cell of a magnitude is exact."""


@dataclass(frozen=True, eq=False)
class EntropyGrid:
    """The integers of one weight, and the bits of each.

    Attributes:
        step: The distance between neighbours, a scalar.
        bits: Bits of the magnitudes 0 to 64, with the sign, 65.
        thresholds: Magnitudes in steps from which the next integer is worth its bits, 64; larger
            magnitudes are rounded to nearest.
        slope: Bits of each step beyond 64, a scalar.
    """

    step: Tensor
    bits: Tensor
    thresholds: Tensor
    slope: Tensor

    def integers(self, weight: Tensor) -> Tensor:
        """Return the integer of least error plus rate for each entry, as floats."""
        return self._on_grid(weight, in_steps=True)

    def rounded(self, weight: Tensor) -> Tensor:
        """Return the entries on the grid; the gradient passes through unchanged."""
        if not weight.requires_grad:
            return self._on_grid(weight)
        values: Tensor = _Rounded.apply(weight, self)  # type: ignore[no-untyped-call]  # torch
        return values

    def code_length(self, weight: Tensor) -> Tensor:
        """Return the bits of all entries, linear between integers, with a gradient to them."""
        rise = torch.cat([self.bits.diff(), self.slope.reshape(1)])
        bits: Tensor = _CodeLength.apply(weight, self.step, self.bits, rise)  # type: ignore[no-untyped-call]  # torch
        return bits

    def _on_grid(self, weight: Tensor, *, in_steps: bool = False) -> Tensor:
        weight = weight.detach()
        values = torch.empty_like(weight, memory_format=torch.contiguous_format)
        count = _counter(self.thresholds, weight)
        for into, piece in in_pieces(values, weight):
            steps = piece / self.step
            sizes = steps.abs()
            nearest = torch.where(sizes > TABLE + 0.5, sizes.round(), count(sizes))
            found = nearest * steps.sign()
            # adding zero converts -0.0 to 0.0
            into.copy_(found if in_steps else found * self.step + 0.0)
        return values


class _Rounded(torch.autograd.Function):
    """Rounds entries to a grid; the gradient passes through."""

    @staticmethod
    @override
    def forward(ctx: Any, weight: Tensor, grid: EntropyGrid) -> Tensor:
        del ctx
        return grid._on_grid(weight)  # noqa: SLF001 (of this module)

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        del ctx
        return grads[0], None


class _CodeLength(torch.autograd.Function):
    """The bits of all entries; saves nothing of the weight's size for the backward pass."""

    @staticmethod
    @override
    def forward(ctx: Any, weight: Tensor, step: Tensor, bits: Tensor, rise: Tensor) -> Tensor:
        ctx.save_for_backward(weight, step, rise)
        dtype = torch.promote_types(weight.dtype, bits.dtype)
        lengths = torch.empty(weight.shape, dtype=dtype, device=weight.device)
        for into, piece in in_pieces(lengths, weight):
            steps, below = _steps(piece, step)
            further = rise.index_select(0, below) * (steps - below)
            into.copy_(bits.index_select(0, below) + further)
        return lengths.sum()

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        weight, step, rise = ctx.saved_tensors
        slopes = torch.empty_like(weight, memory_format=torch.contiguous_format)
        for into, piece in in_pieces(slopes, weight):
            slope = rise.index_select(0, _steps(piece, step)[1]).to(grads[0].dtype) * grads[0]
            into.copy_(slope.to(weight.dtype) / step * piece.sgn())
        return slopes, None, None, None


def _steps(piece: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Return the magnitudes in steps, and the table integers below them."""
    steps = piece.abs() / step
    return steps, steps.floor().clamp(max=TABLE).int()


def _counter(thresholds: Tensor, weight: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that counts, for magnitudes, how many ascending `thresholds` lie below.

    On a CPU a search takes three times as long as looking up the cell of a magnitude, which
    contains at most one threshold to compare with.
    """

    def searched(sizes: Tensor) -> Tensor:
        return torch.bucketize(sizes, thresholds).to(sizes.dtype)

    is_plain = weight.is_cpu and weight.dtype is torch.float32 and type(weight) is Tensor
    if torch.compiler.is_compiling() or not is_plain or weight.numel() < _MANY:
        return searched
    edges = torch.arange((TABLE + 1) * _CELLS + 2, dtype=torch.float32, device="cpu") / _CELLS
    found = torch.bucketize(edges, thresholds)
    first, behind = found[:-1], found[1:]
    border = thresholds[first.clamp(max=TABLE - 1)]
    if not torch.equal(border[first < behind], thresholds[behind - 1][first < behind]):
        return searched
    below, rise = first.to(weight.dtype), (behind - first).to(weight.dtype)

    def looked_up(sizes: Tensor) -> Tensor:
        cell = (sizes * _CELLS).int().clamp_(0, len(border) - 1)
        beyond = sizes > border.index_select(0, cell)
        return below.index_select(0, cell).addcmul_(rise.index_select(0, cell), beyond)

    return looked_up


def bits_of_level(level: float) -> float:
    """Return the bits per weight at `level`, the fraction of a float32's bits that is saved.

    >>> bits_of_level(0.875)
    4.0
    """
    return DENSE_BITS * (1 - level)


@torch.no_grad()
def entropy_grids(weights: Mapping[str, Tensor], bits: float) -> dict[str, EntropyGrid]:
    """Return grids on which all `weights` together take `bits` bits each, on average.

    The error of a tensor of n weights counts relative to its squares, times sqrt(n), so a tensor
    of many weights gets fewer bits per weight (1.7 fewer for a hundred times as many), and none is
    emptied; a bit is worth the same in all tensors. Bits are those of an adaptive coder of order
    0; a context coder needs fewer.

    Args:
        weights: By name, any shapes, float32 or narrower.
        bits: Above 0. Targets below what the weights' integers can reach are not met.

    Raises:
        ArgumentError: `bits` is not above 0.
    """
    if not bits > 0:
        raise ArgumentError(f"bits is {bits!r}: integers take more than 0 bits each, such as 2.")
    flat = {name: one.detach().abs().flatten().float() for name, one in weights.items()}
    energies = {
        name: float(in_float64(one).square().sum()) / math.sqrt(max(1, one.numel()))
        for name, one in flat.items()
    }
    # sorted, so that thresholds are looked up among weights instead of weights among thresholds
    flat = {name: ascending(one) for name, one in flat.items()}
    budget = bits * sum(one.numel() for one in flat.values())
    low, high = _SHARES
    found: dict[str, EntropyGrid] = {}
    least = math.inf
    for _ in tracked(range(_HALVINGS), "Fitting grids"):
        middle = (low + high) / 2
        made = {name: _grid(one, energies[name], 2.0**middle) for name, one in flat.items()}
        total = sum(length for _, length in made.values())
        if total <= budget or total < least:
            least = total
            found = {name: grid for name, (grid, _) in made.items()}
        low, high = (low, middle) if total <= budget else (middle, high)
        if (1 - _CLOSE) * budget <= total <= budget:
            break
    return found


def grid_step(values: Tensor) -> float | None:
    """Return the largest step of which all of `values` are exact integer multiples, or None.

    None if there is none with magnitudes below 2 ** 16 steps, above which a float32 holds not
    every multiple. The step of all zeros is 1.

    Args:
        values: Any shape, float32 or narrower.

    >>> grid_step(torch.tensor([0.75, -1.5, 0.0, 2.25]))
    0.75
    """
    flat = values.detach().flatten()
    # a part of them shows at once that trained weights are on no grid
    return _common_step(flat) if _common_step(flat[:_FEW]) is not None else None


def _common_step(values: Tensor) -> float | None:
    sizes = in_float64(values).abs()
    sizes = sizes[sizes != 0]
    if not sizes.numel():
        return 1.0
    largest = float(sizes.max())
    # the last digit of the smallest value: all values are multiples of it
    unit = math.ldexp(1.0, math.frexp(float(sizes.min()))[1] - _DIGITS)
    if not largest < _MOST_STEPS * unit * 2**_DIGITS:
        return None
    step = unit * int(np.gcd.reduce((sizes / unit).long().cpu().numpy()))
    return step if largest < _MOST_STEPS * step else None


def _grid(sizes: Tensor, energy: float, rate: float) -> tuple[EntropyGrid, float]:
    """Return the grid of ascending magnitudes at a rate, and the bits of all."""
    nearest = torch.arange(TABLE, device=sizes.device).to(sizes) + 0.5
    if not energy:
        nothing = sizes.new_zeros(TABLE + 1)
        return EntropyGrid(sizes.new_ones(()), nothing, nearest, sizes.new_zeros(())), 0.0
    # limit the step, so that a weight never becomes all zero
    step = min(math.sqrt(6 * rate * energy / math.log(2)), float(sizes[-1]) / _FURTHEST)
    step = short_step(step)
    price = rate * energy / step**2  # per bit, in squared steps
    scale = sizes.new_tensor(step)
    steps, thresholds = sizes / scale, nearest
    tail = _Tail.of(steps)
    for _ in range(_PASSES):
        bits, _, _ = _lengths(steps, thresholds, tail)
        moved = nearest + (price * bits.diff() / 2).clamp(max=_WIDEST)
        thresholds = moved.cummax(0).values
    bits, slope, total = _lengths(steps, thresholds, tail)
    return EntropyGrid(scale, bits, thresholds, slope), total


class _Tail(NamedTuple):
    """The magnitudes that are rounded to nearest, because they lie beyond all thresholds.

    Attributes:
        largest: The largest of them in whole steps, or None.
        beyond: The sum of their whole steps beyond 64, a float64 scalar.
    """

    largest: int | None
    beyond: Tensor

    @classmethod
    def of(cls, steps: Tensor) -> "_Tail":
        """Return the tail of magnitudes in steps, ascending."""
        start = torch.searchsorted(steps, steps.new_tensor(TABLE + 0.5), right=True)
        far = steps[int(start) :].round()
        return cls(int(far[-1]) if len(far) else None, in_float64(far - TABLE).sum())


def _lengths(steps: Tensor, thresholds: Tensor, tail: _Tail) -> tuple[Tensor, Tensor, float]:
    """Return bits of magnitudes 0 to 64, bits per step beyond, and the total bits.

    Args:
        steps: Magnitudes in steps, ascending.
        thresholds: As in `EntropyGrid`.
        tail: That of `steps`.
    """
    ends = torch.searchsorted(steps, thresholds, right=True).tolist()
    counts = in_float64(torch.tensor([0, *ends, len(steps)], device=steps.device).diff())
    largest, beyond = tail
    if largest is None:
        largest = int(counts.nonzero()[-1])
    seen = counts + _LEAST * (torch.arange(TABLE + 1, device=counts.device) <= largest + 1)
    bits = -(seen.clamp(min=_LEAST / 2) / seen.sum()).log2()
    bits[1:] += 1  # the sign
    # the last magnitude represents all from it on, with a geometric distribution
    stop = counts[-1] / (counts[-1] + beyond) if counts[-1] else counts.new_ones(())
    going_on = (1 - stop).clamp(min=1e-9)
    bits[-1] -= stop.clamp(min=1e-9).log2()
    slope = -going_on.log2()
    total = float((counts * bits).sum() + beyond * slope)
    return bits.float().to(steps.device), slope.float().to(steps.device), total
