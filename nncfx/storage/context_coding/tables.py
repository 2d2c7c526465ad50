"""The lookup tables of the context coder, integers that are the same on every machine."""

import bisect
import functools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.compiled import IS_COMPILED

_STEPS: Final = 3
"""Levels per octave of a mean."""

LEVELS: Final = 64
"""Number of levels."""

MOST_COUNT: Final = 255
"""The number of decisions after which the learning rate of a probability stays constant."""

_LEAST: Final = 24  # in 65,536ths: the least probability of a decision
_HALF: Final = 2048
_ONE: Final = 1 << 64
_ROOT: Final = 18518942588666869715  # e**(1/256) * 2**64


class Tables(NamedTuple):
    """The lookup tables of the coder.

    Attributes:
        squash: 65,536 / (1 + e**(-t / 256)) by t + 2,048, for t in [-2,048, 2,047].
        stretch: Its inverse by the upper 12 bits of a probability.
        rate: 65,536 / (n + 1.6) by n, the decisions seen.
        level: A mean in 16ths to its level, 3 per octave, below 4,096.
        cost: Bits in 65,536ths by probability in 65,536ths.
    """

    squash: Sequence[int]
    stretch: Sequence[int]
    rate: Sequence[int]
    level: Sequence[int]
    cost: Sequence[int]


@functools.cache
def tables() -> Tables:
    """Return the tables."""
    squash = _squash()
    rate = [655360 // (10 * n + 16) for n in range(MOST_COUNT + 1)]
    # the largest k with 2**k <= v**3 is the integer part of 3 * log2(v)
    level = [(v**_STEPS).bit_length() for v in range(4096)]
    cost = [round((16 - math.log2(max(1, one))) * 65536) for one in range(65537)]
    parts: list[Any] = [squash, _stretch(squash), rate, level, cost]
    # plain Python reads lists four times as fast as arrays
    if IS_COMPILED:
        # small types, so that all tables fit into the first-level cache
        kinds = (np.uint16, np.int16, np.int32, np.uint8, np.int32)
        parts = [np.array(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True)]
    return Tables(*parts)


def _squash() -> list[int]:
    power, upper = _ONE, []
    for _ in range(_HALF + 1):
        upper.append((65536 * power + (power + _ONE) // 2) // (power + _ONE))
        power = power * _ROOT >> 64
    both = [65536 - one for one in upper[:0:-1]] + upper[:-1]
    return [min(max(one, _LEAST), 65536 - _LEAST) for one in both]


def _stretch(squash: list[int]) -> list[int]:
    found = [bisect.bisect_left(squash, 16 * share + 8) - _HALF for share in range(4096)]
    return [min(max(one, 1 - _HALF), _HALF - 1) for one in found]


@functools.cache
def level_means() -> tuple[int, ...]:
    """Return the middle of each level in 256ths."""
    return tuple(_mean(level) >> 4 for level in range(LEVELS))


def level_odds() -> NDArray[np.int32]:
    """Return the initial odds of each level, `LEVELS x 2`, in 2**20ths.

    They are the probabilities of a non-zero, and of continuing after that, under a two-sided
    geometric distribution with the level's mean magnitude.
    """
    odds = []
    for level in range(LEVELS):
        mean = _mean(level)
        tail = math.isqrt((1 << 24) + mean * mean) - 4096  # the ratio is tail / mean
        odds.append(((2 * tail << 20) // (mean + tail), (tail << 20) // mean))
    return np.clip(np.array(odds, dtype=np.int32), 1 << 13, (1 << 20) - (1 << 13))


def _mean(level: int) -> int:
    """Return 2**((level - 0.5) / 3) / 16 in 4,096ths."""
    return math.isqrt(_cube_root((1 << 2 * level + 48) // 2))


def _cube_root(number: int) -> int:
    low, high = 0, 1 << number.bit_length() // 3 + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle)
    return low
