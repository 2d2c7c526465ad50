"""Compiled loops over codes, which multiply few rows while decoding, and more rows by tiles.

Codes have the layout of `PackedWeight`: inputs on axis 0, outputs on axis 1, along which the loops
are vectorized. `zeros` has no rows if each number is its code minus `shift`.

`multiply_parts` and `multiply_tiles` are C functions that any number of threads can run at once.
They take the arguments that `parts.CodedWeight` lays out. All loops are in one file, because numba
recompiles a caller only when the caller's own file changes.
"""

from typing import Any, Final, TypeAlias

import numba as typed_numba
import numpy as np
from numpy.typing import NDArray

from nncfx.quantization.packing.intrinsics import call, take
from nncfx.storage.compiled import fused, inlined

Codes: TypeAlias = NDArray[np.uint8] | NDArray[np.int8]
Floats: TypeAlias = NDArray[np.float32]
Native: TypeAlias = Any
"""Objects that only numba has types for: pointers, types and their builders."""

numba: Final[Native] = typed_numba

INT8: Final = 0
UINT8: Final = 1
NIBBLES: Final = 2
SIZES: Final = 14
"""Integers that a C function takes: parts begun, length of a part, total length; kind and rows of
codes; outputs; rows of the scale and of zeros; shift; group; and four specific to the function."""

_PARTS: Final = numba.types.void(numba.types.CPointer(numba.types.voidptr))


@inlined
def _at(x: Floats, place: int, end: int) -> np.float32:
    return x[place] if place < end else np.float32(0)


@fused
def _four(
    codes: Codes, i: int, end: int, first: int, last: int
) -> tuple[Codes, Codes, Codes, Codes]:
    """Return a part of four rows; rows past the end are replaced by the last."""
    return (
        codes[i][first:last],
        codes[min(i + 1, end - 1)][first:last],
        codes[min(i + 2, end - 1)][first:last],
        codes[min(i + 3, end - 1)][first:last],
    )


@inlined
def _load_grid(  # noqa: PLR0913, PLR0917 (a compiled function takes no records)
    scale: Floats, zeros: Codes, shift: int, group: int, first: int, steps: Floats, offsets: Floats
) -> None:
    """Fill `steps` and `offsets` with those of one group, for outputs from `first` on."""
    last = first + len(steps)
    line = scale[group][first:last]
    for j in range(len(line)):
        steps[j] = line[j]
    if len(zeros):
        row = zeros[group][first:last]
        for j in range(len(row)):
            offsets[j] = np.float32(row[j])
    else:
        for j in range(len(steps)):
            offsets[j] = shift


@inlined
def _load_nibble_grid(  # noqa: PLR0913, PLR0917 (a compiled function takes no records)
    scale: Floats, zeros: Codes, shift: int, group: int, first: int, steps: Floats, offsets: Floats
) -> None:
    """Do the same as `_load_grid`; groups past the rows of `zeros` are in the high halves."""
    last = first + len(steps)
    line = scale[group][first:last]
    for j in range(len(line)):
        steps[j] = line[j]
    if len(zeros) == 0:
        for j in range(len(steps)):
            offsets[j] = shift
    elif group < len(zeros):
        row = zeros[group][first:last]
        for j in range(len(row)):
            offsets[j] = np.float32(np.int32(row[j] & 15))
    else:
        row = zeros[group - len(zeros)][first:last]
        for j in range(len(row)):
            offsets[j] = np.float32(np.int32(row[j] >> 4))


@fused
def decode_bytes(  # noqa: PLR0913, PLR0917 (a compiled function takes no records)
    codes: Codes,
    scale: Floats,
    zeros: Codes,
    shift: int,
    group: int,
    start: int,
    left: int,
    width: int,
    into: Floats,
) -> None:
    """Fill `into` with the numbers of k inputs and w outputs.

    Args:
        codes: i x o.
        scale: g x o.
        zeros: g x o, or 0 x o.
        shift: The code of 0 without `zeros`.
        group: Inputs that share a scale; i with one scale for each output.
        start: The first input.
        left: The first output.
        width: Number of outputs, w.
        into: k x w or wider.
    """
    right = left + width
    grid = np.empty((2, right - left), dtype=np.float32)
    steps, offsets = grid[0], grid[1]
    for k in range(len(into)):
        i = start + k
        if k == 0 or i % group == 0:
            _load_grid(scale, zeros, shift, i // group, left, steps, offsets)
        row, numbers = codes[i][left:right], into[k][:width]
        for j in range(len(numbers)):
            numbers[j] = (np.float32(row[j]) - offsets[j]) * steps[j]


@fused
def decode_nibbles(  # noqa: PLR0913, PLR0917 (a compiled function takes no records)
    codes: Codes,
    scale: Floats,
    zeros: Codes,
    shift: int,
    group: int,
    start: int,
    left: int,
    width: int,
    into: Floats,
) -> None:
    """Do the same as `decode_bytes` for two codes per byte, half of the inputs apart.

    `codes` is s x o, with the first s inputs in the low halves; `zeros` is half of g, rounded up,
    x o, with the same halves, or 0 x o.
    """
    right = left + width
    grid = np.empty((2, right - left), dtype=np.float32)
    steps, offsets = grid[0], grid[1]
    for k in range(len(into)):
        i = start + k
        if k == 0 or i % group == 0:
            _load_nibble_grid(scale, zeros, shift, i // group, left, steps, offsets)
        numbers = into[k][:width]
        if i < len(codes):
            row = codes[i][left:right]
            for j in range(len(numbers)):
                numbers[j] = (np.float32(np.int32(row[j] & 15)) - offsets[j]) * steps[j]
        else:
            row = codes[i - len(codes)][left:right]
            for j in range(len(numbers)):
                numbers[j] = (np.float32(np.int32(row[j] >> 4)) - offsets[j]) * steps[j]


@fused
def multiply_bytes(  # noqa: PLR0913, PLR0917 (a compiled function takes no records)
    codes: Codes,
    scale: Floats,
    zeros: Codes,
    shift: int,
    group: int,
    first: int,
    last: int,
    x: Floats,
    y: Floats,
) -> None:
    """Add `x @ weight.T` to the columns `first` to `last`, exclusive, of `y`.

    `x` is n x i and `y` n x o; the weight is given as in `decode_bytes`.
    """
    inputs = len(codes)
    width = last - first
    parts = np.empty((3, width), dtype=np.float32)
    steps, offsets, sums = parts[0], parts[1], parts[2]
    for start in range(0, inputs, group):
        end = min(start + group, inputs)
        _load_grid(scale, zeros, shift, start // group, first, steps, offsets)
        for n in range(len(x)):
            row, total = x[n], np.float32(0)
            for j in range(width):
                sums[j] = 0
            for i in range(start, end, 8):
                x0, x1 = row[i], _at(row, i + 1, end)
                x2, x3 = _at(row, i + 2, end), _at(row, i + 3, end)
                x4, x5 = _at(row, i + 4, end), _at(row, i + 5, end)
                x6, x7 = _at(row, i + 6, end), _at(row, i + 7, end)
                total += x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7
                c0, c1, c2, c3 = _four(codes, i, end, first, last)
                c4, c5, c6, c7 = _four(codes, min(i + 4, end - 1), end, first, last)
                for j in range(width):
                    sums[j] += (
                        x0 * np.float32(c0[j])
                        + x1 * np.float32(c1[j])
                        + x2 * np.float32(c2[j])
                        + x3 * np.float32(c3[j])
                    ) + (
                        x4 * np.float32(c4[j])
                        + x5 * np.float32(c5[j])
                        + x6 * np.float32(c6[j])
                        + x7 * np.float32(c7[j])
                    )
            out = y[n][first:last]
            for j in range(width):
                out[j] += steps[j] * (sums[j] - offsets[j] * total)


@fused
def multiply_nibbles(  # noqa: PLR0913, PLR0917 (a compiled function takes no records)
    codes: Codes,
    scale: Floats,
    zeros: Codes,
    shift: int,
    group: int,
    first: int,
    last: int,
    x: Floats,
    y: Floats,
) -> None:
    """Do the same as `multiply_bytes` for codes as in `decode_nibbles`."""
    split, inputs = len(codes), x.shape[1]
    width = last - first
    parts = np.empty((6, width), dtype=np.float32)
    steps, offsets, sums = parts[0], parts[1], parts[2]
    high_steps, high_offsets, high_sums = parts[3], parts[4], parts[5]
    for start in range(0, split, group):
        end = min(start + group, split)
        _load_nibble_grid(scale, zeros, shift, start // group, first, steps, offsets)
        high_group = min(split + start, inputs - 1) // group
        _load_nibble_grid(scale, zeros, shift, high_group, first, high_steps, high_offsets)
        for n in range(len(x)):
            row, total, high_total = x[n], np.float32(0), np.float32(0)
            high_end = min(split + end, inputs)
            for j in range(width):
                sums[j] = 0
                high_sums[j] = 0
            for i in range(start, end, 4):
                x0, x1 = row[i], _at(row, i + 1, end)
                x2, x3 = _at(row, i + 2, end), _at(row, i + 3, end)
                h0, h1 = _at(row, split + i, high_end), _at(row, split + i + 1, high_end)
                h2, h3 = _at(row, split + i + 2, high_end), _at(row, split + i + 3, high_end)
                total += x0 + x1 + x2 + x3
                high_total += h0 + h1 + h2 + h3
                c0, c1, c2, c3 = _four(codes, i, end, first, last)
                for j in range(width):
                    b0, b1, b2, b3 = c0[j], c1[j], c2[j], c3[j]
                    sums[j] += (
                        x0 * np.float32(np.int32(b0 & 15))
                        + x1 * np.float32(np.int32(b1 & 15))
                        + x2 * np.float32(np.int32(b2 & 15))
                        + x3 * np.float32(np.int32(b3 & 15))
                    )
                    high_sums[j] += (
                        h0 * np.float32(np.int32(b0 >> 4))
                        + h1 * np.float32(np.int32(b1 >> 4))
                        + h2 * np.float32(np.int32(b2 >> 4))
                        + h3 * np.float32(np.int32(b3 >> 4))
                    )
            out = y[n][first:last]
            for j in range(width):
                out[j] += steps[j] * (sums[j] - offsets[j] * total) + high_steps[j] * (
                    high_sums[j] - high_offsets[j] * high_total
                )


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def _weight(places: Native, sizes: Native, dtype: Native) -> Native:
    return (
        numba.carray(places[1], (sizes[4], sizes[5]), dtype),
        numba.carray(places[2], (sizes[6], sizes[5]), np.float32),
        numba.carray(places[3], (sizes[7], sizes[5]), dtype),
        sizes[8],
        sizes[9],
    )


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _decode(
    places: Native, sizes: Native, start: int, left: int, width: int, into: Floats
) -> None:
    if sizes[3] == INT8:
        codes, scale, zeros, shift, group = _weight(places, sizes, np.int8)
        decode_bytes(codes, scale, zeros, shift, group, start, left, width, into)
    elif sizes[3] == UINT8:
        codes, scale, zeros, shift, group = _weight(places, sizes, np.uint8)
        decode_bytes(codes, scale, zeros, shift, group, start, left, width, into)
    else:
        codes, scale, zeros, shift, group = _weight(places, sizes, np.uint8)
        decode_nibbles(codes, scale, zeros, shift, group, start, left, width, into)


@numba.cfunc(_PARTS, cache=True)  # type: ignore[untyped-decorator]
def multiply_parts(places: Native) -> None:
    """Add `x @ weight.T` to `y` in parts of columns; the sizes end with the shape of x."""
    sizes = numba.carray(places[0], SIZES, np.int64)
    x = numba.carray(places[4], (sizes[10], sizes[11]), np.float32)
    y = numba.carray(places[5], (sizes[10], sizes[5]), np.float32)
    first = take(places[0]) * sizes[1]
    while first < sizes[2]:
        last = min(first + sizes[1], sizes[2])
        if sizes[3] == INT8:
            codes, scale, zeros, shift, group = _weight(places, sizes, np.int8)
            multiply_bytes(codes, scale, zeros, shift, group, first, last, x, y)
        elif sizes[3] == UINT8:
            codes, scale, zeros, shift, group = _weight(places, sizes, np.uint8)
            multiply_bytes(codes, scale, zeros, shift, group, first, last, x, y)
        else:
            codes, scale, zeros, shift, group = _weight(places, sizes, np.uint8)
            multiply_nibbles(codes, scale, zeros, shift, group, first, last, x, y)
        first = take(places[0]) * sizes[1]


@numba.cfunc(_PARTS, cache=True)  # type: ignore[untyped-decorator]
def multiply_tiles(places: Native) -> None:
    """Set `y` to `x @ weight.T` in parts of columns, by BLAS over decoded tiles.

    The sizes end with the shape of x and the inputs of a tile; the last pointer is `sgemm`.
    """
    sizes = numba.carray(places[0], SIZES, np.int64)
    x = numba.carray(places[4], (sizes[10], sizes[11]), np.float32)
    y = numba.carray(places[5], (sizes[10], sizes[5]), np.float32)
    step, height = sizes[1], sizes[12]
    # with rows of a power of two, all numbers of a column would fall into one set of the cache
    tile = np.empty((height, step + 16), dtype=np.float32)
    # BLAS reads row-major matrices as transposed: y.T = tile.T @ x.T. Sizes are integers of 8
    # bytes, from which a BLAS with integers of 4 reads the same number
    as_is = np.array([ord("N")], dtype=np.int8)
    width, rows, inputs = np.zeros(1, np.int64), np.array([len(x)]), np.zeros(1, np.int64)
    strides = np.array([step + 16, x.shape[1], y.shape[1]])
    alpha, beta = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    first = take(places[0]) * step
    while first < sizes[2]:
        width[0] = min(step, sizes[2] - first)
        for start in range(0, x.shape[1], height):
            inputs[0] = min(height, x.shape[1] - start)
            beta[0] = start > 0
            _decode(places, sizes, start, first, width[0], tile[: inputs[0]])
            call(
                places[6],
                (
                    as_is.ctypes.data,
                    as_is.ctypes.data,
                    width.ctypes.data,
                    rows.ctypes.data,
                    inputs.ctypes.data,
                    alpha.ctypes.data,
                    tile.ctypes.data,
                    strides.ctypes.data,
                    x[:, start:].ctypes.data,
                    strides[1:].ctypes.data,
                    beta.ctypes.data,
                    y[:, first:].ctypes.data,
                    strides[2:].ctypes.data,
                ),
            )
        first = take(places[0]) * step
