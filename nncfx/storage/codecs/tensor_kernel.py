"""Read tensor codecs by one compiled loop, which avoids numpy's call overhead for small tensors.

It reads the output of `tensor_codecs` and stops at any fault; the plain numpy reader then reports
what is wrong.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.codecs.number_formats import Words
from nncfx.storage.codecs.symbol_kernel import PADDING, Bytes, Cursor, next_varint, read_symbols
from nncfx.storage.compiled import compiled

Places: TypeAlias = NDArray[np.int32]
Rows: TypeAlias = NDArray[np.uint8]
"""Words as rows of their bytes."""

INDICES: Final = ("dense", "bitmap", "runs")
VALUES: Final = ("raw", "planes", "codebook")
"""The codecs that are read here; positions in both tuples are the arguments of `decode_tensor`."""

MOST_WORDS: Final = 1 << 20
"""The largest tensor; reading takes some twelve bytes per word, and larger ones gain nothing."""

_BITMAP, _RUNS = INDICES.index("bitmap"), INDICES.index("runs")
_RAW, _PLANES = VALUES.index("raw"), VALUES.index("planes")
_LARGEST = 1 << 16
_LONGEST_RUN = 4095


@compiled
def _all_places(size: int) -> Places:
    """Return all positions, followed by -1."""
    places = np.arange(size + 1, dtype=np.int32)
    places[size] = -1
    return places


@compiled
def _bitmap_places(data: Bytes, end: int, at: Cursor, size: int) -> Places:
    """Return the places of the values, and then -1; at a fault, a 0 last."""
    whole = (size + 7) >> 3
    places = np.zeros(size + 1, dtype=np.int32)
    if whole > end - at[0]:
        return places[:1]
    count = 0
    for i in range(8 * whole):
        if data[at[0] + (i >> 3)] >> (i & 7) & 1:
            if i >= size:
                return places[:1]
            places[count] = i
            count += 1
    at[0] += whole
    places[count] = -1
    return places[: count + 1]


@compiled
def _run_places(data: Bytes, end: int, at: Cursor, size: int) -> Places:
    """Return the places of the values, and then -1; at a fault, a 0 last."""
    fault = np.zeros(1, dtype=np.int32)
    runs, limit = next_varint(data, end, at), next_varint(data, end, at)
    if runs < 0 or runs > size or limit < 1 or limit > _LONGEST_RUN:
        return fault
    symbols = np.empty(runs, dtype=np.uint16)
    if not read_symbols(data, end, at, symbols):
        return fault
    places = np.empty(runs + 1, dtype=np.int32)
    count, place = 0, -1
    for i in range(runs):
        run = int(symbols[i])
        if run > limit:
            return fault
        place += run
        if run < limit:
            place += 1
            places[count] = place
            count += 1
    if place >= size:
        return fault
    places[count] = -1
    return places[: count + 1]


@compiled
def _read_raw(data: Bytes, end: int, at: Cursor, places: Places, out: Rows) -> bool:
    width = out.shape[1]
    if len(places) * width > end - at[0]:
        return False
    for i in range(len(places)):
        for byte in range(width):
            out[places[i], byte] = data[at[0] + i * width + byte]
    at[0] += len(places) * width
    return True


@compiled
def _read_planes(data: Bytes, end: int, at: Cursor, places: Places, out: Rows) -> bool:
    symbols = np.empty(len(places), dtype=np.uint16)
    for byte in range(out.shape[1]):
        if not read_symbols(data, end, at, symbols):
            return False
        for i in range(len(places)):
            if symbols[i] > 0xFF:
                return False
            out[places[i], byte] = symbols[i]
    return True


@compiled
def _read_codes(data: Bytes, end: int, at: Cursor, places: Places, out: Rows) -> bool:
    width = out.shape[1]
    size = next_varint(data, end, at)
    if size < 0 or size >= _LARGEST or size * width > end - at[0]:
        return False
    table = at[0] - width  # code 0 is zero
    at[0] += size * width
    symbols = np.empty(len(places), dtype=np.uint16)
    if not read_symbols(data, end, at, symbols):
        return False
    for i in range(len(places)):
        code = int(symbols[i])
        if code > size:
            return False
        for byte in range(width if code else 0):
            out[places[i], byte] = data[table + code * width + byte]
    return True


@compiled
def decode_tensor(index: int, values: int, data: Bytes, out: Rows) -> bool:
    """Read a whole tensor into `out`; return whether its bytes were valid.

    Args:
        index: The position of its index in `INDICES`.
        values: The position of its values in `VALUES`.
        data: Its bytes, then `PADDING` zeros.
        out: Zeros to be overwritten by words, as rows of their bytes; at most `MOST_WORDS`.
    """
    at = np.zeros(1, dtype=np.int64)
    end = len(data) - PADDING
    if index == _BITMAP:
        places = _bitmap_places(data, end, at, len(out))
    elif index == _RUNS:
        places = _run_places(data, end, at, len(out))
    else:
        places = _all_places(len(out))
    if places[-1] >= 0:
        return False
    places = places[:-1]
    if values == _RAW:
        done = _read_raw(data, end, at, places, out)
    elif values == _PLANES:
        done = _read_planes(data, end, at, places, out)
    else:
        done = _read_codes(data, end, at, places, out)
    return done and at[0] == end


def decoded(codec: str, payload: memoryview, count: int, width: int) -> Words | None:
    """Return the result of `decode_words`; None if that must read the words or report a fault.

    `payload` holds all bytes of the tensor.
    """
    index, _, values = codec.partition("+")
    if count > MOST_WORDS or values not in VALUES:
        return None
    data = np.zeros(len(payload) + PADDING, dtype=np.uint8)
    data[: len(payload)] = payload
    out = np.zeros((count, width), dtype=np.uint8)
    if not decode_tensor(INDICES.index(index), VALUES.index(values), data, out):
        return None
    return out.reshape(-1).view(f"<u{width}")
