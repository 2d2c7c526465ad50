"""Grids on which a set of weights takes so many bits: rounding, and the bits as a loss."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.float64 import in_float64
from nncfx.schemes.rate_distortion.rounding import short_step
from nncfx.sorting import ascending

DENSE_BITS: Final = 32
"""Of a weight that nothing was done to."""
TABLE: Final = 64
"""Magnitudes with code lengths of their own; larger ones are on a geometric tail."""
_PASSES: Final = 3
_HALVINGS: Final = 24
_CLOSE: Final = 0.002
_LEAST: Final = 0.5
_WIDEST: Final = 0.5
"""Steps by which thresholds move at most: a rare integer would become rarer without end."""
_FURTHEST: Final = 1.01
"""Steps to the largest magnitude, at least: beyond the threshold of 1."""
_SHARES: Final = (-90.0, 0.0)
"""Binary logarithms of the share of a layer's squares that a bit can be worth."""
_MOST_VALUES: Final = 1 << 12


@dataclass(frozen=True, eq=False)
class EntropyGrid:
    """The integers of one weight, and what each costs.

    Attributes:
        step: The distance of neighbours, a scalar.
        bits: Bits of the magnitudes 0 to 64, with the sign, 65.
        thresholds: Magnitudes in steps beyond which the next integer is worth its bits, 64;
            beyond them the nearest integer is taken.
        slope: Bits of each step beyond 64, a scalar.
    """

    step: Tensor
    bits: Tensor
    thresholds: Tensor
    slope: Tensor

    def integers(self, weight: Tensor) -> Tensor:
        """Return the integer of each entry, of least error plus rate, as floats."""
        steps = weight.detach() / self.step
        sizes = steps.abs()
        found = torch.bucketize(sizes, self.thresholds).to(sizes.dtype)
        return torch.where(sizes > TABLE + 0.5, sizes.round(), found) * steps.sign()

    def rounded(self, weight: Tensor) -> Tensor:
        """Return the entries on the grid; the gradient passes as if they were `weight`."""
        values = self.integers(weight) * self.step
        values = torch.where(values == 0, torch.zeros_like(values), values)
        # the difference is zero exactly, and carries the gradient
        return values + (weight - weight.detach()) if weight.requires_grad else values

    def code_length(self, weight: Tensor) -> Tensor:
        """Return the bits of all entries, between integers linearly, with a gradient to them."""
        steps = weight.abs() / self.step
        below = steps.detach().floor().clamp(max=TABLE).long()
        rise = torch.cat([self.bits.diff(), self.slope.reshape(1)])
        return (self.bits[below] + rise[below] * (steps - below)).sum()


def bits_of_level(level: float) -> float:
    """Return the bits of a weight at `level`, the fraction of a float32's bits that is saved.

    >>> bits_of_level(0.875)
    4.0
    """
    return DENSE_BITS * (1 - level)


@torch.no_grad()
def entropy_grids(weights: Mapping[str, Tensor], bits: float) -> dict[str, EntropyGrid]:
    """Return the grids on which all `weights` together take `bits` bits each, on average.

    The error of a tensor of n weights counts as a share of its squares, sqrt(n)-fold, so that one
    of many weights takes fewer bits for each (of a hundred times as many, 1.7 fewer), and none is
    emptied; a bit more or less is worth the same in
    all of them. Bits are those of an adaptive coder of order 0; a context coder needs fewer.

    Args:
        weights: By name, any shapes, float32 or narrower.
        bits: Above 0. Less than a weight's integers can take is not reached.

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
    # sorted, so that thresholds are looked up among weights, and not weights among thresholds
    flat = {name: ascending(one) for name, one in flat.items()}
    budget = bits * sum(one.numel() for one in flat.values())
    low, high = _SHARES
    found: dict[str, EntropyGrid] = {}
    least = math.inf
    for _ in range(_HALVINGS):
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
    """Return the step of which all of `values` are exact whole multiples, or None.

    Looked for where there are few distinct values. All zeros have a step of 1.

    >>> grid_step(torch.tensor([0.75, -1.5, 0.0, 2.25]))
    0.75
    """
    flat = values.detach().flatten()
    if len(flat) > _MOST_VALUES and len(_distinct(flat[:_MOST_VALUES])) > _MOST_VALUES // 2:
        return None
    distinct = _distinct(flat)
    if not distinct.numel():
        return 1.0
    if distinct.numel() > _MOST_VALUES:
        return None
    gap = float(torch.cat([distinct[:1], distinct.diff()]).min())
    for part in (1, 2, 3):
        whole = (distinct / (gap / part)).round()
        if torch.equal(whole * (gap / part), distinct) and float(whole.max()) < 2 * _MOST_VALUES:
            return gap / part
    return None


def _distinct(values: Tensor) -> Tensor:
    """Return the magnitudes of `values` above 0, each once, ascending, float64."""
    ordered = ascending(in_float64(values).abs())
    is_new = torch.ones_like(ordered, dtype=torch.bool)
    is_new[1:] = ordered.diff() > 0
    return ordered[is_new & (ordered > 0)]


def _grid(sizes: Tensor, energy: float, rate: float) -> tuple[EntropyGrid, float]:
    """Return the grid of magnitudes, which ascend, at a rate, and the bits of all."""
    nearest = torch.arange(TABLE, device=sizes.device).to(sizes) + 0.5
    if not energy:
        nothing = sizes.new_zeros(TABLE + 1)
        return EntropyGrid(sizes.new_ones(()), nothing, nearest, sizes.new_zeros(())), 0.0
    # no step is so large that all of a weight is zero
    step = min(math.sqrt(6 * rate * energy / math.log(2)), float(sizes.max()) / _FURTHEST)
    step = short_step(step)
    price = rate * energy / step**2  # of a bit, in squared steps
    scale = sizes.new_tensor(step)
    steps, thresholds = sizes / scale, nearest
    for _ in range(_PASSES):
        bits, _, _ = _lengths(steps, thresholds)
        moved = nearest + (price * bits.diff() / 2).clamp(max=_WIDEST)
        thresholds = moved.cummax(0).values
    bits, slope, total = _lengths(steps, thresholds)
    return EntropyGrid(scale, bits, thresholds, slope), total


def _lengths(steps: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return bits of magnitudes 0 to 64, bits of each step beyond, and those of all in all.

    Args:
        steps: Magnitudes in steps, ascending.
        thresholds: As in `EntropyGrid`.
    """
    limits = torch.cat([thresholds, thresholds.new_tensor([TABLE + 0.5])])
    *ends, start = torch.searchsorted(steps, limits, right=True).tolist()
    far = steps[start:].round()
    counts = in_float64(torch.tensor([0, *ends, len(steps)], device=steps.device).diff())
    largest = int(far[-1]) if len(far) else int(counts.nonzero()[-1])
    seen = counts + _LEAST * (torch.arange(TABLE + 1, device=counts.device) <= largest + 1)
    bits = -(seen.clamp(min=_LEAST / 2) / seen.sum()).log2()
    bits[1:] += 1  # the sign
    # the last magnitude stands for all from it on, which fall off geometrically
    beyond = in_float64(far - TABLE).sum()
    stop = counts[-1] / (counts[-1] + beyond) if counts[-1] else counts.new_ones(())
    going_on = (1 - stop).clamp(min=1e-9)
    bits[-1] -= stop.clamp(min=1e-9).log2()
    slope = -going_on.log2()
    total = float((counts * bits).sum() + beyond * slope)
    return bits.float().to(steps.device), slope.float().to(steps.device), total
