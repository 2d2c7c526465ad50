"""The main loop of the context coder, which codes one binary decision at a time in integers.

The same code reads, writes and prices. It is plain Python for lists; numba compiles it for arrays,
once for each of the three modes, because the arguments that are None are known then.
"""

from collections.abc import MutableSequence, Sequence
from typing import Final, TypeAlias

from nncfx.storage.compiled import inlined, lean
from nncfx.storage.context_coding.tables import LEVELS, MOST_COUNT, Tables

DECISIONS: Final = 16
"""Probabilities of a context."""

GRID: Final = 24
POSITIONS: Final = 32
_PLACES: Final = LEVELS + GRID * GRID
_NEAR: Final = _PLACES + 16 * POSITIONS
AREA: Final = _NEAR + LEVELS
AREAS: Final = 5
_UNARY: Final = 12
_LOW_BITS: Final = AREAS * AREA
_SIGNS: Final = _LOW_BITS + 13 + 16 + LEVELS + 1
CONTEXTS: Final = 8192
_LAST: Final = CONTEXTS * DECISIONS - 1
MIXERS: Final = 8
_LAST_WEIGHT: Final = 4 * DECISIONS * MIXERS - 1
_FULL: Final = 1 << 32

_UNBOUND: Final = 1 << 62

Cells: TypeAlias = MutableSequence[int]
State: TypeAlias = tuple[int, int, int, int]
"""Low, span and position of the coder, and the price of the integer."""


@inlined
def _level(levels: Sequence[int], mean: int) -> int:
    """Return the level of a mean in 16ths."""
    if mean < 4096:
        return int(levels[mean & 4095])
    return int(levels[min(mean >> 8, 4095)]) + 24


@inlined
def _lower(level: int, down: int) -> int:
    """Return a level minus `down`, not below 0."""
    return max(0, level - down) if down else level


@inlined
def _half_level(levels: Sequence[int], mean: int, down: int) -> int:
    """Return the grid index, for rows or columns, of a mean in 256ths."""
    return min(GRID - 1, _lower(_level(levels, mean >> 4), down) >> 1)


@lean
def _put(low: int, place: int, words: Cells) -> None:
    """Write the upper bits of `low` as the word `place`; a carry goes into earlier words."""
    word = low >> 32
    if word >> 16:
        before = place - 1
        while words[before] == 65535:
            words[before] = 0
            before -= 1
        words[before] += 1
    words[place] = word & 65535


@inlined
def _code(
    state: State, p: int, bit: int, known: Tables, source: Cells | None, sink: Cells | None
) -> tuple[State, int]:
    """Code one bit, 1 with the odds p / 65,536; return the state and the bit."""
    low, span, place, price = state
    if source is not None:
        bound = (span >> 16) * p
        if low < bound:
            span, bit = bound, 1
        else:
            low, span, bit = low - bound, span - bound, 0
        if span < _FULL:
            low, span = low << 16, span << 16
            if place < len(source):
                low |= int(source[place])
            place += 1
    elif sink is not None:
        bound = (span >> 16) * p
        if bit:
            span = bound
        else:
            low, span = low + bound, span - bound
        if span < _FULL:
            _put(low, place, sink)
            low, span, place = (low & (_FULL - 1)) << 16, span << 16, place + 1
    else:
        price += int(known.cost[p if bit else 65536 - p])
    return (low, span, place, price), bit


@inlined
def _learnt(o: int, goal: int, rate: Sequence[int]) -> int:
    """Return the odds and count of a context after one more decision."""
    n = o & 255
    more = 1 if n < MOST_COUNT else 0
    return o + ((((goal - (o >> 8)) * int(rate[n])) >> 16) << 8) + more


@inlined
def _decide(
    state: State,
    contexts: tuple[int, int, int, int],
    mixer: int,
    index: int,
    bit: int,
    known: Tables,
    odds: Cells,
    mixers: Cells,
    source: Cells | None,
    sink: Cells | None,
) -> tuple[State, int]:
    """Code one decision, and learn from it; return the state and the bit."""
    k0, k1, k2, k3 = contexts
    j0, j1 = (k0 + index) & _LAST, (k1 + index) & _LAST
    j2, j3 = (k2 + index) & _LAST, (k3 + index) & _LAST
    w = 4 * (mixer + index) & _LAST_WEIGHT
    o0, o1, o2, o3 = int(odds[j0]), int(odds[j1]), int(odds[j2]), int(odds[j3])
    stretch = known.stretch
    t0, t1 = int(stretch[(o0 >> 16) & 4095]), int(stretch[(o1 >> 16) & 4095])
    t2, t3 = int(stretch[(o2 >> 16) & 4095]), int(stretch[(o3 >> 16) & 4095])
    w0, w1 = int(mixers[w]), int(mixers[w + 1])
    w2, w3 = int(mixers[w + 2]), int(mixers[w + 3])
    mixed = (w0 * t0 + w1 * t1 + w2 * t2 + w3 * t3) >> 16
    p = int(known.squash[(max(-2047, min(2047, mixed)) + 2048) & 4095])
    state, bit = _code(state, p, bit, known, source, sink)
    # two branches, so that the processor can continue speculatively before it knows the bit
    if bit:
        error, goal = 5 * (65536 - p), (1 << 20) - 1
        mixers[w] = w0 + ((t0 * error + 131072) >> 18)
        mixers[w + 1] = w1 + ((t1 * error + 131072) >> 18)
        mixers[w + 2] = w2 + ((t2 * error + 131072) >> 18)
        mixers[w + 3] = w3 + ((t3 * error + 131072) >> 18)
        odds[j0] = _learnt(o0, goal, known.rate)
        odds[j1] = _learnt(o1, goal, known.rate)
        odds[j2] = _learnt(o2, goal, known.rate)
        odds[j3] = _learnt(o3, goal, known.rate)
    else:
        error, goal = -5 * p, 0
        mixers[w] = w0 + ((t0 * error + 131072) >> 18)
        mixers[w + 1] = w1 + ((t1 * error + 131072) >> 18)
        mixers[w + 2] = w2 + ((t2 * error + 131072) >> 18)
        mixers[w + 3] = w3 + ((t3 * error + 131072) >> 18)
        odds[j0] = _learnt(o0, goal, known.rate)
        odds[j1] = _learnt(o1, goal, known.rate)
        odds[j2] = _learnt(o2, goal, known.rate)
        odds[j3] = _learnt(o3, goal, known.rate)
    return state, bit


@lean
def _code_rest(
    state: State, rest: int, known: Tables, source: Cells | None, sink: Cells | None
) -> tuple[State, int]:
    """Code a non-negative number in inverted Elias gamma; return the state and the number."""
    more = rest + 1
    length = 0
    while True:
        state, bit = _code(state, 32768, 1 if more >> (length + 1) else 0, known, source, sink)
        if not bit or length == 40:
            break
        length += 1
    found = 1
    for k in range(length - 1, -1, -1):
        state, bit = _code(state, 32768, (more >> k) & 1, known, source, sink)
        found = found << 1 | bit
    return state, found - 1


@lean
def code_tensor(
    known: Tables,
    values: Cells,
    layout: Cells,
    odds: Cells,
    mixers: Cells,
    columns: Cells,
    coder: Cells,
    source: Cells | None,
    sink: Cells | None,
    prices: Cells | None,
) -> None:
    """Code the integers of one tensor; see docs/format.md.

    Exactly one of `source`, `sink` and `prices` is not None, and selects the mode.

    Args:
        known: The tables.
        values: The integers, row after row; overwritten if there is a source, else read.
        layout: Rows, columns, period, least magnitude of a sparse tensor or 0, start of the
            means, start of the means of non-zeros, largest magnitude.
        odds: For each decision in each context: 20 bits of probability, 8 bits of count.
        mixers: The weights of the mixers, 4 each.
        columns: Room for two means per column.
        coder: Low, span, position, fault.
        source: Words of 16 bits to read.
        sink: Room for words to write.
        prices: Receives the bits of each integer in 65,536ths.
    """
    levels = known.level
    rows, width, period, least = int(layout[0]), int(layout[1]), int(layout[2]), int(layout[3])
    largest = int(layout[6])
    state = (int(coder[0]), int(coder[1]), int(coder[2]), 0)
    # a reader may pass the end by a few words, read as zeros; a writer needs room for one integer
    room = _UNBOUND
    if source is not None:
        room = len(source) + 2
    if sink is not None:
        room = len(sink) - 32
    for c in range(width):
        columns[c] = layout[4]
        columns[width + c] = layout[5]
    row = recent = int(layout[4])
    row_kept = int(layout[5])
    offset = max(0, least - 1)
    at = -1
    for r in range(rows):
        before = above = beside = position = 0
        size_before = size_second = size_above = size_beside = 0
        if r and width:
            beside = int(values[r * width - width])
            size_beside = max(0, abs(beside) - offset)
        for c in range(width):
            at += 1
            above, size_above = beside, size_beside
            beside = int(values[at - width + 1]) if r and c + 1 < width else 0
            size_beside = max(0, abs(beside) - offset)
            far = int(values[at - period]) if c >= period else 0
            size_far = max(0, abs(far) - offset)
            near = 4 * (size_before + size_far + size_above) + 2 * (size_second + size_beside)
            column = int(columns[c])
            mean = ((2 * row + 2 * column + recent + (near << 4)) >> 5 & _UNBOUND - 1) // 3
            level = _level(levels, mean)
            shift = 0 if least or level < 19 else (level - 16) // 3
            kind = 2 if least else 1 if shift else 0
            down = 3 * shift
            level -= down
            area = kind * AREA
            around = 4 * min(3, size_before >> shift) + min(3, size_above >> shift)
            grid = GRID * _half_level(levels, row, down) + _half_level(levels, column, down)
            contexts = (
                (area + level) * DECISIONS,
                (area + LEVELS + grid) * DECISIONS,
                (area + _PLACES + 16 * (position & 31) + around) * DECISIONS,
                (area + _NEAR + _lower(_level(levels, near), down)) * DECISIONS,
            )
            mixer = kind * DECISIONS
            # write the magnitude, in a sparse tensor counted from the least magnitude
            negative = amount = target = 0
            if source is None:
                value = 0 + int(values[at])  # 64 bits, because abs(-128) overflows int8
                negative = 1 if value < 0 else 0
                amount = abs(value)
                target = min(1, amount) if least else amount >> shift
            bit = 1 if target else 0
            state, bit = _decide(state, contexts, mixer, 0, bit, known, odds, mixers, source, sink)
            size = count = 0
            if bit:
                if least:
                    column_kept = int(columns[width + c])
                    kept = _level(levels, (2 * row_kept + column_kept) // 48)
                    shift = 0 if kept < 19 else (kept - 16) // 3
                    kind = 4 if shift else 3
                    down = 3 * shift
                    area = kind * AREA
                    around = 4 * min(3, size_before >> shift) + min(3, size_above >> shift)
                    grid = GRID * _half_level(levels, row_kept, down)
                    grid += _half_level(levels, column_kept, down)
                    contexts = (
                        (area + kept - down) * DECISIONS,
                        (area + LEVELS + grid) * DECISIONS,
                        (area + _PLACES + 16 * (position & 31) + around) * DECISIONS,
                        (area + _NEAR + level) * DECISIONS,
                    )
                    mixer = kind * DECISIONS
                    amount -= least
                    target = 1 + (amount >> shift)
                count = 1
                while count < _UNARY:
                    bit = 1 if target > count else 0
                    state, bit = _decide(
                        state, contexts, mixer, count, bit, known, odds, mixers, source, sink
                    )
                    if not bit:
                        break
                    count += 1
                size = count
                if count == _UNARY:
                    state, rest = _code_rest(state, target - _UNARY, known, source, sink)
                    size += rest
                if least:
                    size -= 1
            if shift:
                contexts = (
                    (_LOW_BITS + count) * DECISIONS,
                    (_LOW_BITS + 13 + shift) * DECISIONS,
                    (_LOW_BITS + 13 + 16 + level) * DECISIONS,
                    (_LOW_BITS + 13 + 16 + LEVELS) * DECISIONS,
                )
                index = 1
                for depth in range(shift - 1, -1, -1):
                    bit = (amount >> depth) & 1
                    if index < 8:
                        state, bit = _decide(
                            state,
                            contexts,
                            5 * DECISIONS,
                            index,
                            bit,
                            known,
                            odds,
                            mixers,
                            source,
                            sink,
                        )
                        index = 2 * index + bit
                    else:
                        state, bit = _code(state, 32768, bit, known, source, sink)
                    size = size << 1 | bit
            if least and count:
                size += least
            if size:
                sign_before = (before > 0) - (before < 0) + 1
                sign_above = (above > 0) - (above < 0) + 1
                sign_far = (far > 0) - (far < 0) + 1
                place = 3 * (position & 31)
                contexts = (
                    (_SIGNS + 9 * sign_before + 3 * sign_above + sign_far) * DECISIONS,
                    (_SIGNS + 27) * DECISIONS,
                    (_SIGNS + 28 + place + sign_far) * DECISIONS,
                    (_SIGNS + 28 + 3 * POSITIONS + place + sign_before) * DECISIONS,
                )
                state, negative = _decide(
                    state, contexts, 6 * DECISIONS, 0, negative, known, odds, mixers, source, sink
                )
            if state[2] > room:
                coder[3] = 1
                return
            if size > largest + negative:
                coder[3] = 1
                size = 0
            before = -size if negative else size
            if source is not None:
                values[at] = before
            if prices is not None:
                prices[at] = state[3]
                state = (state[0], state[1], state[2], 0)
            size_second, size_before = size_before, max(0, size - offset)
            if least and size:
                rest = (size - least) << 8
                row_kept += (rest - row_kept) >> 4
                columns[width + c] += (rest - int(columns[width + c])) >> 3
            counted = size_before << 8
            row += (counted - row) >> 5
            recent += (counted - recent) >> 2
            columns[c] = column + ((counted - column) >> 3)
            position += 1
            if position == period:
                position = 0
    coder[0], coder[1], coder[2] = state[0], state[1], state[2]
