"""The loop of the context coder: one binary decision after the other, in whole numbers.

Reads, writes and prices with the same lines. Plain Python for lists; numba compiles it for arrays.
"""

from collections.abc import MutableSequence, Sequence
from typing import Final, TypeAlias

from nncfx.storage.codecs.compiled import compiled
from nncfx.storage.context_coding.tables import LEVELS, MOST_COUNT, Tables

__all__ = [
    "AREA",
    "AREAS",
    "CONTEXTS",
    "DECISIONS",
    "DECODE",
    "ENCODE",
    "GRID",
    "MIXERS",
    "POSITIONS",
    "PRICE",
    "code_tensor",
]

PRICE: Final = 0
DECODE: Final = 1
ENCODE: Final = 2

DECISIONS: Final = 16
"""Probabilities of a context."""

GRID: Final = 24
POSITIONS: Final = 32
AREA: Final = LEVELS + GRID * GRID + 16 * POSITIONS + LEVELS
AREAS: Final = 5
_UNARY: Final = 12
_LOW_BITS: Final = AREAS * AREA
_SIGNS: Final = _LOW_BITS + 13 + 16 + LEVELS + 1
_USED: Final = _SIGNS + 27 + 1 + 3 * POSITIONS + 3 * POSITIONS
CONTEXTS: Final = 8192
_LAST: Final = CONTEXTS * DECISIONS - 1
MIXERS: Final = 8
_LAST_WEIGHT: Final = 4 * DECISIONS * MIXERS - 1
_FULL: Final = 1 << 32

Cells: TypeAlias = MutableSequence[int]


@compiled
def _level(levels: Sequence[int], mean: int) -> int:
    """Return the level of a mean in 16ths."""
    if mean < 4096:
        return int(levels[mean])
    return int(levels[min(mean >> 8, 4095)]) + 24


@compiled
def _put(low: int, place: int, data: Cells) -> None:
    """Write the upper bits of `low` as the word `place`; a carry goes into those before it."""
    word = low >> 32
    if word >> 16:
        before = place - 1
        while data[before] == 65535:
            data[before] = 0
            before -= 1
        data[before] += 1
    data[place] = word & 65535


@compiled
def _step(
    mode: int, low: int, span: int, place: int, data: Cells, odds: int, bit: int
) -> tuple[int, int, int, int]:
    """Code one bit, 1 with `odds` / 65,536; return low, span, place and the bit."""
    bound = (span >> 16) * odds
    if mode == DECODE:
        if low < bound:
            span, bit = bound, 1
        else:
            low, span, bit = low - bound, span - bound, 0
        if span < _FULL:
            low = low << 16
            if place < len(data):
                low |= int(data[place])
            span, place = span << 16, place + 1
    else:
        if bit:
            span = bound
        else:
            low, span = low + bound, span - bound
        if span < _FULL:
            _put(low, place, data)
            low, span, place = (low & (_FULL - 1)) << 16, span << 16, place + 1
    return low, span, place, bit


@compiled
def code_tensor(
    mode: int,
    known: Tables,
    values: Cells,
    layout: Cells,
    odds: Cells,
    mixers: Cells,
    columns: Cells,
    data: Cells,
    coder: Cells,
    prices: Cells,
) -> None:
    """Code the integers of one tensor; see the page of the format.

    Args:
        mode: `PRICE`, `DECODE` or `ENCODE`.
        known: The tables.
        values: The integers, row after row; read, or written when decoding.
        layout: Rows, columns, period, least magnitude of a sparse tensor or 0, start of the
            means, start of the means of what is not zero, largest magnitude.
        odds: Of each decision in each context: 20 bits of probability, 8 bits of count.
        mixers: The weights of the mixers, 4 each.
        columns: Room for two means per column.
        data: Words of 16 bits.
        coder: Low, span, place, fault.
        prices: Gets the bits of each integer in 65,536ths when pricing.
    """
    squash, stretch, rate, levels, cost = (
        known.squash,
        known.stretch,
        known.rate,
        known.level,
        known.cost,
    )
    rows, width, period, least = int(layout[0]), int(layout[1]), int(layout[2]), int(layout[3])
    largest = int(layout[6])
    low, span, place = int(coder[0]), int(coder[1]), int(coder[2])
    # a tensor may end in words that a reader takes for zeros, a writer needs some for one integer
    words = len(data)
    room = words + 2 if mode == DECODE else words - 32
    for c in range(width):
        columns[c] = layout[4]
        columns[width + c] = layout[5]
    row = recent = int(layout[4])
    row_kept = int(layout[5])
    offset = max(0, least - 1)
    at = -1
    for r in range(rows):
        before = second = above = position = 0
        beside = int(values[r * width - width]) if r and width else 0
        for c in range(width):
            at += 1
            above = beside
            beside = int(values[at - width + 1]) if r and c + 1 < width else 0
            far = int(values[at - period]) if c >= period else 0
            size_before, size_above, size_far = abs(before), abs(above), abs(far)
            size_second, size_beside = abs(second), abs(beside)
            if offset:
                size_before = max(0, size_before - offset)
                size_above = max(0, size_above - offset)
                size_far = max(0, size_far - offset)
                size_second = max(0, size_second - offset)
                size_beside = max(0, size_beside - offset)
            near = 4 * (size_before + size_far + size_above) + 2 * (size_second + size_beside)
            column = int(columns[c])
            mean = (2 * row + 2 * column + recent + (near << 4)) // 96
            # contexts of the magnitude
            level = _level(levels, mean)
            shift = 0
            if not least:
                shift = max(0, (level - 13) // 3 - 1)
            kind = 2 if least else 1 if shift else 0
            down = 3 * shift
            level -= down
            grid_row = min(GRID - 1, max(0, _level(levels, row >> 4) - down) >> 1)
            grid_column = min(GRID - 1, max(0, _level(levels, column >> 4) - down) >> 1)
            area = kind * AREA
            k0 = (area + level) * DECISIONS
            k1 = (area + LEVELS + grid_row * GRID + grid_column) * DECISIONS
            area += LEVELS + GRID * GRID
            around = 4 * min(3, size_before >> shift) + min(3, size_above >> shift)
            k2 = (area + 16 * (position & 31) + around) * DECISIONS
            k3 = (area + 16 * POSITIONS + max(0, _level(levels, near) - down)) * DECISIONS
            mixer = kind * DECISIONS
            size = target = 0
            negative = 0
            if mode != DECODE:
                value = 0 + int(values[at])  # of 64 bits, which abs(-128) needs
                size = abs(value)
                negative = 1 if value < 0 else 0
            price = 0
            # stages: 0 magnitude, 1 low bits, 2 sign
            stage, index, depth = 0, 0, 0
            if mode != DECODE and not least:
                target = size >> shift
            elif mode != DECODE:
                target = 1 if size else 0
            while True:
                j0, j1 = (k0 + index) & _LAST, (k1 + index) & _LAST
                j2, j3 = (k2 + index) & _LAST, (k3 + index) & _LAST
                w = 4 * (mixer + index) & _LAST_WEIGHT
                o0, o1, o2, o3 = int(odds[j0]), int(odds[j1]), int(odds[j2]), int(odds[j3])
                t0, t1 = int(stretch[(o0 >> 16) & 4095]), int(stretch[(o1 >> 16) & 4095])
                t2, t3 = int(stretch[(o2 >> 16) & 4095]), int(stretch[(o3 >> 16) & 4095])
                w0, w1, w2, w3 = (
                    int(mixers[w]),
                    int(mixers[w + 1]),
                    int(mixers[w + 2]),
                    int(mixers[w + 3]),
                )
                mixed = (w0 * t0 + w1 * t1 + w2 * t2 + w3 * t3) >> 16
                p = int(squash[(max(-2047, min(2047, mixed)) + 2048) & 4095])
                bit = 0
                if mode != DECODE:
                    if stage == 0:
                        bit = 1 if target > index else 0
                    elif stage == 1:
                        bit = (size >> depth) & 1
                    else:
                        bit = negative
                if mode == DECODE:
                    bound = (span >> 16) * p
                    if low < bound:
                        span = bound
                        bit = 1
                    else:
                        low -= bound
                        span -= bound
                    if span < _FULL:
                        low = low << 16
                        if place < words:
                            low |= int(data[place])
                        span = span << 16
                        place += 1
                elif mode == PRICE:
                    price += int(cost[p if bit else 65536 - p])
                else:
                    low, span, place, bit = _step(mode, low, span, place, data, p, bit)
                error = 5 * ((bit << 16) - p)
                mixers[w] = w0 + ((t0 * error + 131072) >> 18)
                mixers[w + 1] = w1 + ((t1 * error + 131072) >> 18)
                mixers[w + 2] = w2 + ((t2 * error + 131072) >> 18)
                mixers[w + 3] = w3 + ((t3 * error + 131072) >> 18)
                goal = (bit << 20) - bit
                n = o0 & 255
                odds[j0] = ((o0 >> 8) + (((goal - (o0 >> 8)) * int(rate[n])) >> 16)) << 8 | min(
                    n + 1, MOST_COUNT
                )
                n = o1 & 255
                odds[j1] = ((o1 >> 8) + (((goal - (o1 >> 8)) * int(rate[n])) >> 16)) << 8 | min(
                    n + 1, MOST_COUNT
                )
                n = o2 & 255
                odds[j2] = ((o2 >> 8) + (((goal - (o2 >> 8)) * int(rate[n])) >> 16)) << 8 | min(
                    n + 1, MOST_COUNT
                )
                n = o3 & 255
                odds[j3] = ((o3 >> 8) + (((goal - (o3 >> 8)) * int(rate[n])) >> 16)) << 8 | min(
                    n + 1, MOST_COUNT
                )
                if stage == 0:
                    if bit:
                        index += 1
                        if least and index == 1:
                            # sparse: the rest counts from the least magnitude on
                            column_kept = int(columns[width + c])
                            kept = _level(levels, (2 * row_kept + column_kept) // 48)
                            shift = max(0, (kept - 13) // 3 - 1)
                            down = 3 * shift
                            kind = 4 if shift else 3
                            area = kind * AREA
                            k0 = (area + kept - down) * DECISIONS
                            grid_row = min(
                                GRID - 1, max(0, _level(levels, row_kept >> 4) - down) >> 1
                            )
                            grid_column = min(
                                GRID - 1, max(0, _level(levels, column_kept >> 4) - down) >> 1
                            )
                            k1 = (area + LEVELS + grid_row * GRID + grid_column) * DECISIONS
                            area += LEVELS + GRID * GRID
                            around = 4 * min(3, size_before >> shift) + min(3, size_above >> shift)
                            k2 = (area + 16 * (position & 31) + around) * DECISIONS
                            k3 = (area + 16 * POSITIONS + level) * DECISIONS
                            mixer = kind * DECISIONS
                            if mode != DECODE:
                                target = 1 + ((size - least) >> shift)
                        if index < _UNARY:
                            continue
                        # the rest in Elias gamma
                        more = target - _UNARY + 1
                        length = 0
                        while True:
                            bit = 1 if more >> (length + 1) else 0
                            if mode == PRICE:
                                price += 65536
                            else:
                                low, span, place, bit = _step(
                                    mode, low, span, place, data, 32768, bit
                                )
                            if not bit or length == 40:
                                break
                            length += 1
                        found = 1
                        for k in range(length - 1, -1, -1):
                            bit = (more >> k) & 1
                            if mode == PRICE:
                                price += 65536
                            else:
                                low, span, place, bit = _step(
                                    mode, low, span, place, data, 32768, bit
                                )
                            found = found << 1 | bit
                        if mode == DECODE:
                            target = found - 1 + _UNARY
                    elif mode == DECODE:
                        target = index
                    if mode == DECODE:
                        size = target
                        if least and target:
                            size = target - 1
                    if least and not target:
                        break
                    if shift:
                        if mode != DECODE and least:
                            size -= least
                        stage, depth, index = 1, shift - 1, 1
                        k0 = (_LOW_BITS + min(target, _UNARY)) * DECISIONS
                        k1 = (_LOW_BITS + 13 + shift) * DECISIONS
                        k2 = (_LOW_BITS + 13 + 16 + level) * DECISIONS
                        k3 = (_LOW_BITS + 13 + 16 + LEVELS) * DECISIONS
                        mixer = 5 * DECISIONS
                        continue
                    if mode != DECODE and least:
                        size -= least
                elif stage == 1:
                    if mode == DECODE:
                        size = size << 1 | bit
                    depth -= 1
                    index = 2 * index + bit
                    if depth >= 0 and index < 8:
                        continue
                    while depth >= 0:
                        bit = (size >> depth) & 1
                        if mode == PRICE:
                            price += 65536
                        else:
                            low, span, place, bit = _step(mode, low, span, place, data, 32768, bit)
                        if mode == DECODE:
                            size = size << 1 | bit
                        depth -= 1
                if stage == 2:
                    negative = bit
                    break
                size += least
                if not size:
                    break
                stage, index = 2, 0
                sign_before = (before > 0) - (before < 0) + 1
                sign_above = (above > 0) - (above < 0) + 1
                sign_far = (far > 0) - (far < 0) + 1
                k0 = (_SIGNS + 9 * sign_before + 3 * sign_above + sign_far) * DECISIONS
                k1 = (_SIGNS + 27) * DECISIONS
                k2 = (_SIGNS + 28 + 3 * (position & 31) + sign_far) * DECISIONS
                k3 = (_SIGNS + 28 + 3 * POSITIONS + 3 * (position & 31) + sign_before) * DECISIONS
                mixer = 6 * DECISIONS
            if mode and place > room:
                coder[3] = 1
                return
            if size > largest + negative:
                coder[3] = 1
                size = 0
            if mode == DECODE:
                values[at] = -size if negative else size
            elif mode == PRICE:
                prices[at] = price
            counted = max(0, size - offset)
            if least and size:
                rest = (size - least) << 8
                row_kept += (rest - row_kept) >> 4
                columns[width + c] += (rest - int(columns[width + c])) >> 3
            row += ((counted << 8) - row) >> 5
            recent += ((counted << 8) - recent) >> 2
            columns[c] = column + (((counted << 8) - column) >> 3)
            position += 1
            if position == period:
                position = 0
            second, before = before, -size if negative and size else size
    coder[0], coder[1], coder[2] = low, span, place
