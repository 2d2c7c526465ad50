"""Map tensors to integers of the context coder: plain integers, multiples of scales, or codes.

`integers`: a varint that is added, modulo the width. `grid`: the number of scales as varint
(either 1 or the size of the first axis), then the scales as float32; a number is
float32(integer) * scale. `codebook`: the varints p and n, then p + n words; integer k > 0 is the
k-th of the first p words, -k the k-th of the others, and 0 the word 0.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.codecs.codebook import Codebook, to_codes
from nncfx.storage.codecs.number_formats import BitTensor, Words, narrow
from nncfx.storage.context_coding.layout import IntegerLayout

Integers: TypeAlias = NDArray[np.signedinteger[Any]]

CONTEXT_CODECS = ("context+integers", "context+grid", "context+codebook")
"""The names of the codecs."""

_INTEGERS = ("BOOL", "U8", "I8", "U16", "I16", "U32", "I32")
_LARGEST_BOOK = 1 << 16
_FINEST = 1 << 20  # multiples of a scale
_CHUNK = 1 << 16
_ROWS = 8  # the fewest numbers of a row with its own scale


class Meaning(NamedTuple):
    """Integers in the shape of their tensor, and how they map to words.

    Attributes:
        codec: One of `CONTEXT_CODECS`.
        stored: The format of the words, by safetensors name.
        head: The bytes from which a reader maps integers to words.
        integers: The integers.
    """

    codec: str
    stored: str
    head: bytes
    integers: Integers


def meaning_of(tensor: BitTensor) -> Meaning | None:
    """Return `tensor` as integers; None unless its values are few or evenly spaced.

    The mapping is exact: `to_words` returns the same bits.
    """
    if tensor.dtype in _INTEGERS or tensor.dtype == "I64":
        words, stored = narrow(tensor.words, tensor.dtype)
        return _plain(words, stored, tensor.shape) if stored in _INTEGERS else None
    book = to_codes(tensor.words, min(_LARGEST_BOOK - 1, tensor.words.size // 4))
    if book is None:
        return _on_rows(tensor)
    sign = book.values.dtype.itemsize * 8 - 1
    words = book.values[1:].view(f"<u{book.values.itemsize}")
    positive = int(np.count_nonzero(words >> sign == 0))
    if tensor.dtype == "F32":
        scale = _spacing(words.view("<f4"))
        if scale:
            ranks = np.rint(book.values.view("<f4") / np.float64(scale))
            head = varint(1) + np.float32(scale).tobytes()
            return Meaning(CONTEXT_CODECS[1], "F32", head, _ranked(ranks, book, tensor))
        by_rows = _on_rows(tensor)
        if by_rows is not None:
            return by_rows
    narrowed, stored = narrow(words, tensor.dtype)
    head = varint(positive) + varint(words.size - positive) + narrowed.tobytes()
    ranks = np.arange(book.values.size, dtype=np.int32)
    ranks[positive + 1 :] = -np.arange(1, words.size - positive + 1)
    return Meaning(CONTEXT_CODECS[2], stored, head, _ranked(ranks, book, tensor))


def _ranked(ranks: NDArray[Any], book: Codebook, tensor: BitTensor) -> Integers:
    """Return the rank of each number of `tensor`, in its shape, as int8 if they fit."""
    small = np.abs(ranks).max(initial=0) < 1 << 7
    kind: type[np.signedinteger[Any]] = np.int8 if small else np.int32
    return ranks.astype(kind)[book.codes].reshape(tensor.shape)


def _plain(words: Words, stored: str, shape: tuple[int, ...]) -> Meaning:
    signed = words.view(f"<i{words.itemsize}")
    zero = 0
    if stored[0] == "U":
        found, counts = np.unique(words, return_counts=True)
        zero = int(found[counts.argmax()]) if found.size else 0
        signed = (words - words.dtype.type(zero)).view(signed.dtype)
    return Meaning(CONTEXT_CODECS[0], stored, varint(zero), signed.reshape(shape))


def _spacing(values: NDArray[np.float32]) -> np.float32 | None:
    """Return the scale of which all `values`, none of them zero, are integer multiples."""
    sizes = np.unique(np.abs(values))
    # no multiple of a positive scale is -0.0
    if not sizes.size or not sizes[0] or not np.isfinite(sizes[-1]):
        return None
    exact = sizes.astype(np.float64)
    gaps = np.append(np.diff(exact), exact[0])
    gap = float(gaps[gaps > exact[-1] / _FINEST].min(initial=np.inf))
    for part in (1, 2, 3):  # not every multiple occurs
        found = _refined(exact, gap / part)
        with np.errstate(over="ignore", invalid="ignore"):  # the float after the largest is inf
            near = np.nextafter(found, np.array([-1, found, np.inf], dtype="<f4"))
            for scale in near[near > 0]:  # below the smallest float is 0
                ranks = np.rint(exact / np.float64(scale))
                if np.array_equal(ranks.astype("<f4") * scale, sizes):
                    return np.float32(scale)
    return None


def _refined(sizes: NDArray[np.float64], step: float) -> np.float32:
    """Return `step` refined step by step with larger multiples, which determine it better."""
    for reach in (1 << 6, 1 << 12, _FINEST):
        near = float(sizes[sizes < reach * step].max(initial=0))
        step = near / round(near / step) if near > step / 2 else step
    return np.float32(step)


def _on_rows(tensor: BitTensor) -> Meaning | None:
    """Return the meaning of floats with one scale per index of the first axis."""
    rows = tensor.shape[0] if len(tensor.shape) > 1 else 0
    if tensor.dtype != "F32" or not rows or tensor.words.size < _ROWS * rows:
        return None
    values = tensor.words.view("<f4").reshape(rows, -1)
    ranks, scales = np.zeros(values.shape, dtype=np.int32), np.ones(rows, dtype="<f4")
    for row, one in enumerate(values):
        distinct = np.unique(one)
        scale = _spacing(distinct[distinct != 0])
        if scale is None and distinct.any():
            return None
        scales[row] = scale or 1.0
        ranks[row] = np.rint(one / np.float64(scales[row]))
        again = ranks[row].astype("<f4") * scales[row]
        if not np.array_equal(again.view("<u4"), one.view("<u4")):
            return None
    head = varint(rows) + scales.tobytes()
    return Meaning(CONTEXT_CODECS[1], "F32", head, ranks.reshape(tensor.shape))


_Made: TypeAlias = Callable[[Integers, slice], Words]
"""Maps the integers of some rows, in the shape of the tensor, to words."""


def read_meaning(codec: str, source: ByteReader, width: int, shape: tuple[int, ...]) -> _Made:
    """Take the head of a tensor from `source`; return a function that maps integers to words.

    The words have `width` bytes. If the axes of `shape` are swapped, so are those of the
    function's argument.

    Raises:
        StorageError: The head is damaged or truncated.
    """
    if codec == CONTEXT_CODECS[0]:
        return _Shifted(source, width)
    if codec == CONTEXT_CODECS[1]:
        return _Scaled(source, width, shape)
    return _Booked(source, width)


class _Shifted:
    def __init__(self, source: ByteReader, width: int) -> None:
        zero = source.varint()
        _check(width < 8 and zero < 1 << 8 * width)  # noqa: PLR2004 (integers of 4 bytes or fewer)
        self._kind = np.dtype(f"<u{width}")
        self._zero = self._kind.type(zero)

    def __call__(self, integers: Integers, rows: slice) -> Words:
        del rows
        most = 1 << 8 * self._kind.itemsize - 1
        _check(int(integers.min(initial=0)) >= -most and int(integers.max(initial=0)) < most)
        words: Words = integers.astype(f"<i{self._kind.itemsize}").view(self._kind) + self._zero
        return words


class _Scaled:
    def __init__(self, source: ByteReader, width: int, shape: tuple[int, ...]) -> None:
        count = source.varint()
        _check(width == 4 and (count == 1 or [count] == list(shape[:1])))  # noqa: PLR2004 (float32)
        self._scales = np.frombuffer(source.take(4 * count), dtype="<f4")

    def __call__(self, integers: Integers, rows: slice) -> Words:
        scales = self._scales
        if scales.size != 1:
            scales = scales[rows].reshape(-1, *[1] * (integers.ndim - 1))
        with np.errstate(all="ignore"):
            numbers: NDArray[Any] = integers.astype("<f4") * scales
        return numbers.view("<u4")


class _Booked:
    def __init__(self, source: ByteReader, width: int) -> None:
        positive, negative = source.varint(), source.varint()
        _check(positive + negative < _LARGEST_BOOK)
        words = np.frombuffer(source.take((positive + negative) * width), dtype=f"<u{width}")
        zero = np.zeros(1, dtype=words.dtype)
        self._negative = negative
        self._table = np.concatenate([words[positive:][::-1], zero, words[:positive]])

    def __call__(self, integers: Integers, rows: slice) -> Words:
        del rows
        places = integers.astype(np.int64) + self._negative
        _check(int(places.min(initial=0)) >= 0)
        _check(int(places.max(initial=0)) < self._table.size)
        return self._table[places]


def to_words(
    integers: Integers,
    layout: IntegerLayout,
    shape: tuple[int, ...],
    made: _Made,
    widened: Callable[[Words], Words],
) -> Words:
    """Return the words, 1-D in C order, of `integers`, 1-D in the order of `layout`.

    `made` is from `read_meaning`; `widened` converts words to another format.

    Raises:
        StorageError: An integer maps to no word.
    """
    kind = widened(made(np.zeros([0] * max(1, len(shape)), np.int8), slice(0, 0))).dtype
    words = np.empty(shape or (1,), dtype=kind)
    view = words.swapaxes(0, 1) if layout.swapped else words
    inner = integers.size // view.shape[0] if view.shape[0] else 0
    for rows in _blocks(view.shape[0], inner):
        block = integers[rows.start * inner : rows.stop * inner]
        block = block.reshape(view[rows].shape)
        if layout.swapped:
            found = widened(made(block.swapaxes(0, 1), slice(None)))
            words[:, rows] = found
        else:
            words[rows] = widened(made(block, rows))
    return words.reshape(-1)


def _blocks(rows: int, inner: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, inner))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def _check(holds: bool) -> None:
    if not holds:
        raise StorageError(
            "The file is damaged: integers do not decode to numbers of their tensor."
        )
