"""Rounding by rate and distortion: a weight gets a cheaper integer if that is worth it."""

import math
from typing import Final

import torch
from torch import Tensor

from nncfx.schemes.rate_distortion.code_lengths import CodeLengths, neighbour_contexts

_PASSES: Final = 3
"""Rounds of choosing integers and updating code lengths; a fourth changes little."""
_LARGEST: Final = 4095
"""The largest integer that files store, in steps from zero."""
_SHORT: Final = 7
"""Bits of a step's mantissa below the highest: products with integers are exact in float32."""


def best_step(curvature: Tensor, rate: float) -> float:
    """Return the step of a uniform quantizer at which one bit is worth `rate`.

    With noise of step**2 / 12 and half the step for each bit, the loss that a bit saves is
    curvature * step**2 * ln(2) / 6.

    Args:
        curvature: Growth of the loss per squared error of each weight; the geometric mean of those
            above zero is used.
        rate: Loss per bit, above 0.

    Source: Gersho and Gray 1992, Vector Quantization and Signal Compression, section 5.6.
    """
    positive = curvature[curvature > 0].double()
    mean = math.exp(float(positive.log().mean())) if positive.numel() else 1.0
    return short_step(math.sqrt(6 * rate / (math.log(2) * mean)))


def finest_step(weight: Tensor) -> float:
    """Return the finest step for which all weights fit in the integers that files store."""
    return short_step(float(weight.abs().max()) / _LARGEST * (1 + 2**-_SHORT))


def short_step(step: float) -> float:
    """Return `step`, above 0, rounded to 8 bits.

    >>> short_step(0.1)
    0.10009765625
    """
    factor, exponent = math.frexp(step)
    return math.ldexp(round(math.ldexp(factor, _SHORT + 1)), exponent - _SHORT - 1)


def round_weights(
    weight: Tensor, curvature: Tensor, step: float, rate: float
) -> tuple[Tensor, CodeLengths]:
    """Return the integers of least loss plus rate, and the assumed code lengths.

    Args:
        weight: o x i.
        curvature: Loss per squared error; broadcasts to `weight`.
        step: Of the grid.
        rate: Loss per bit, at least 0.

    Source: Sullivan and Wiegand 1998, Rate-distortion optimization for video compression.
    """
    steps = weight / step
    largest = min(_LARGEST, max(1, int(steps.abs().max().ceil())))
    contexts = neighbour_contexts(steps)
    integers = steps.round().clamp(-largest, largest)
    lengths = CodeLengths.fitted(integers, contexts, largest)
    for _ in range(_PASSES):
        integers = cheapest(steps, contexts, lengths, curvature * step**2, rate)
        lengths = CodeLengths.fitted(integers, contexts, largest)
    return integers, lengths


def cheapest(
    steps: Tensor, contexts: Tensor, lengths: CodeLengths, curvature: Tensor, rate: float
) -> Tensor:
    """Return the integer of least loss plus rate for each number.

    Candidates are the nearest integer, the next one towards zero, and zero.

    Args:
        steps: Numbers in units of the step, any shape.
        contexts: Of each of them.
        lengths: Bits of integers in contexts.
        curvature: Loss per squared step; broadcasts to `steps`.
        rate: Loss per bit.
    """
    best = steps.round().clamp(-lengths.largest, lengths.largest)
    cost = curvature * (steps - best).square() + rate * lengths.of(best, contexts)
    for other in (best - best.sign(), torch.zeros_like(best)):
        its = curvature * (steps - other).square() + rate * lengths.of(other, contexts)
        best, cost = torch.where(its < cost, other, best), torch.minimum(its, cost)
    return best
