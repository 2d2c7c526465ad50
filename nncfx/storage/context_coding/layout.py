"""The order in which the context coder reads the integers of a tensor, and its head in a file."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.huffman import count_symbols
from nncfx.storage.context_coding.tables import LEVELS, level_means

_SWAPPED, _SPARSE, _PERIODIC, _WIDE, _HALVED = 1, 2, 4, 8, 16
_LONGEST = 1 << 16
_WIDEST = 1 << 17
_REPEATING, _SAMPLED, _FARTHEST, _ALIKE = 16, 64, 65, 0.1
_SPARSE_FROM = 3  # the least magnitude


@dataclass(frozen=True, kw_only=True)
class IntegerLayout:
    """The matrix in which integers are coded, and the initial values of their means.

    Attributes:
        rows: Of the matrix as which the tensor is coded.
        columns: Of the matrix.
        period: Columns this far apart are similar: the size of a kernel, or the distance by which
            a matrix repeats itself.
        least: The least non-zero magnitude if zeros are coded separately; otherwise 0.
        start: The level of the mean magnitude.
        kept: The level of the mean excess of non-zero magnitudes over `least`.
        swapped: Whether the first two axes are swapped.
    """

    rows: int
    columns: int
    period: int
    least: int
    start: int
    kept: int
    swapped: bool

    def of(self, shape: tuple[int, ...]) -> "IntegerLayout":
        """Return the same layout for a tensor of another shape."""
        return _layout(shape, self.swapped, self.period, self.least, self.start, self.kept)

    def halves(self) -> tuple["IntegerLayout", "IntegerLayout"]:
        """Return the layouts of the upper and the lower rows; an odd row belongs to the upper."""
        lower = self.rows // 2
        return replace(self, rows=self.rows - lower), replace(self, rows=lower)

    def numbers(self, dtype: np.dtype[Any]) -> NDArray[np.int64]:
        """Return the layout argument of the kernel, for integers of `dtype`."""
        means = level_means()
        rest = [self.least, means[self.start], means[self.kept], np.iinfo(dtype).max]
        return np.array([self.rows, self.columns, self.period, *rest], dtype=np.int64)

    def packed(self, shape: tuple[int, ...], *, wide: bool, halved: bool = False) -> bytes:
        """Return the head of a tensor of `shape`; see `Head`."""
        is_periodic = self.period != _usual_period(shape)
        flags = self.swapped * _SWAPPED | bool(self.least) * _SPARSE | is_periodic * _PERIODIC
        flags |= wide * _WIDE | halved * _HALVED
        head = bytes([flags, self.start])
        if is_periodic:
            head += varint(self.period)
        return head + (varint(self.least) + bytes([self.kept]) if self.least else b"")


class Head(NamedTuple):
    """The head of a tensor.

    Attributes:
        layout: The layout of its integers.
        wide: Whether an integer exceeds 8 bits.
        halved: Whether the lower rows are in the second lane of the stream.
    """

    layout: IntegerLayout
    wide: bool
    halved: bool


def read_layout(source: ByteReader, shape: tuple[int, ...]) -> Head:
    """Return the head that `packed` wrote for a tensor of `shape`.

    Raises:
        StorageError: It is truncated or out of range.
    """
    flags, start = source.take(2)
    period = source.varint() if flags & _PERIODIC else _usual_period(shape)
    least = source.varint() if flags & _SPARSE else 0
    kept = source.take(1)[0] if flags & _SPARSE else 0
    fits = flags < 2 * _HALVED and max(start, kept) < LEVELS and least < 1 << 31
    fits = fits and (len(shape) > 1 or not flags & _SWAPPED)
    fits = fits and 1 <= period <= max(_LONGEST, _usual_period(shape))
    if not fits or bool(flags & _SPARSE) != bool(least):
        raise StorageError("The file is damaged: the head of a context-coded tensor is invalid.")
    layout = _layout(shape, bool(flags & _SWAPPED), period, least, start, kept)
    return Head(layout, bool(flags & _WIDE), bool(flags & _HALVED))


def _layout(
    shape: tuple[int, ...], swapped: bool, period: int, least: int, start: int, kept: int
) -> IntegerLayout:
    count = math.prod(shape)
    rows = shape[swapped] if len(shape) > 1 else count
    if rows and count // rows > _WIDEST:
        rows = count  # the means of so many columns would take more memory than they save
    return IntegerLayout(
        rows=rows,
        columns=count // rows if rows else 0,
        period=period,
        least=least,
        start=start,
        kept=kept,
        swapped=swapped,
    )


def _usual_period(shape: tuple[int, ...]) -> int:
    return max(1, math.prod(shape[2:]))


def candidates(values: NDArray[Any]) -> Iterator[IntegerLayout]:
    """Yield the layouts worth trying for `values`, which have the shape of their tensor."""
    found, counts = _histogram(values)
    sizes = np.abs(found)
    kept = int(counts[sizes > 0].sum())
    least = int(sizes[sizes > 0].min(initial=2**31)) if kept else 0
    is_sparse = least >= _SPARSE_FROM and 2 * kept < values.size
    least = least if is_sparse else 0
    total = int((sizes * counts).sum())
    start = _level_of(total - max(0, least - 1) * kept, values.size)
    rest = _level_of(total - least * kept, kept) if least else 0
    for swapped in (False, True)[: max(1, min(2, values.ndim))]:
        yield _layout(values.shape, swapped, _period(values, swapped), least, start, rest)


def _histogram(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if values.dtype != np.int8:
        found, counts = np.unique(values, return_counts=True)
        return found.astype(np.int64), counts
    counts = np.zeros(256, dtype=np.int64)
    seen = count_symbols(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    counts[: seen.size] = seen
    found = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
    return found[counts > 0], counts[counts > 0]


def _level_of(total: int, count: int) -> int:
    mean = 16 * total // max(1, count)
    level = 0 if not mean else (mean**3).bit_length()
    return min(level, LEVELS - 1)


def _period(values: NDArray[Any], swapped: bool) -> int:
    """Return the distance at which columns of a matrix are most alike; 1 if there is none."""
    if values.ndim != 2 or min(values.shape) < _REPEATING:  # noqa: PLR2004 (matrices)
        return _usual_period(values.shape)
    matrix = (values.T if swapped else values)[:_SAMPLED].astype(np.float32)
    power = np.square(np.abs(np.fft.rfft(matrix, 2 * matrix.shape[1], axis=1))).sum(axis=0)
    alike = np.fft.irfft(power)[: min(_FARTHEST, matrix.shape[1] // 4)]
    inner = alike[2:-1]
    is_peak = (inner >= alike[1:-2]) & (inner >= alike[3:]) if inner.size else inner > 0
    peaks = np.where(is_peak, inner, 0)
    best = 2 + int(np.argmax(peaks)) if peaks.size else 1
    return best if peaks.size and alike[best] > _ALIKE * alike[0] else 1


def in_order(values: NDArray[Any], layout: IntegerLayout) -> NDArray[Any]:
    """Return `values`, which have the shape of their tensor, 1-D in the order of `layout`."""
    if layout.swapped:
        values = values.swapaxes(0, 1)
    return np.ascontiguousarray(values).reshape(-1)
