"""Read and write segments of a `.nncfx` file: consecutive tensors that share a checksum.

The rows of a segment whose codec begins with `context` share one context-coded stream: each has a
head and then its share of the stream; see `nncfx.storage.context_coding`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError, require_known
from nncfx.storage.codecs import tensor_codecs
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.huffman import count_symbols
from nncfx.storage.codecs.number_formats import WIDTHS, BitTensor, Words, narrow, widen
from nncfx.storage.compiled import IS_COMPILED, pays_off
from nncfx.storage.context_coding.stream import ContextWriter, read_stream
from nncfx.storage.context_coding.values import CONTEXT_CODECS, meaning_of, read_meaning, to_words

CODECS: Final = (*tensor_codecs.CODECS, *CONTEXT_CODECS)
"""The names of all codecs; context codecs exist since version 3."""

Mode = Literal["auto", "fast", "small"]
"""`fast` decodes fastest and `small` gives the smallest file; `auto` is `small` if numba is
installed (the extra `nncfx[codec]`), otherwise `fast`."""

MODES: Final = ("auto", "fast", "small")

_SEGMENT_BYTES: Final = 4096
_STREAM_NUMBERS: Final = 1 << 19
_HALVED_BYTES: Final = 768  # the least order-0 entropy of a tensor that two threads read
_FEWEST: Final = 32  # the fewest numbers of a tensor for which context coding is tried


@dataclass(frozen=True, kw_only=True)
class TensorRow:
    """One tensor in a file.

    Attributes:
        name: Its `state_dict` key.
        dtype: Its number format, by safetensors name.
        stored: The format of its numbers in the file, `dtype` or an exact narrower format.
        shape: Its dimensions.
        codec: `index+values`, see `tensor_codecs`, or `context+meaning`, see `values`.
        size_bytes: Its bytes in the file.
    """

    name: str
    dtype: str
    stored: str
    shape: tuple[int, ...]
    codec: str
    size_bytes: int

    @property
    def count(self) -> int:
        """Return the number of its elements."""
        return math.prod(self.shape)

    @property
    def in_stream(self) -> bool:
        """Return whether it is part of the stream of its segment."""
        return self.codec in CONTEXT_CODECS

    @property
    def since_version_3(self) -> bool:
        """Return whether its codec is unknown to readers of version 2."""
        return self.in_stream or self.codec.endswith("+split")


class Segment(NamedTuple):
    """Consecutive tensors.

    Attributes:
        rows: The rows of the tensors.
        data: Their concatenated bytes.
        has_halves: Whether a tensor is in two lanes, which readers of version 3 do not know.
    """

    rows: list[TensorRow]
    data: bytes
    has_halves: bool

    @property
    def version(self) -> int:
        """Return the lowest version of the format, at least 2, that supports the segment."""
        if self.has_halves:
            return 4
        return 3 if any(row.since_version_3 for row in self.rows) else 2


def segments_of(tensors: Mapping[str, BitTensor], mode: Mode) -> Iterator[Segment]:
    """Yield `tensors`, which are read one at a time, as segments.

    A segment ends once it has 4,096 bytes or, with a context-coded stream, 2**19 numbers.

    Raises:
        ArgumentError: The mode is unknown.
    """
    require_known("mode", mode, MODES)
    small = mode == "small" or (mode == "auto" and IS_COMPILED)
    run = _Run()
    for name in tensors:
        # the mapping may read tensors on access, so do not keep one while the next is read
        run.add(name, tensors[name], small=small)
        if run.is_full:
            yield run.finish()
            run = _Run()
    if run.rows:
        yield run.finish()


class _Run:
    """Tensors of a segment that is being written."""

    def __init__(self) -> None:
        self.rows: list[TensorRow] = []
        self._payloads: list[bytes] = []
        self._stream: _StreamWriter | None = None

    @property
    def is_full(self) -> bool:
        if self._stream is not None and self._stream.numbers:
            return sum(row.count for row in self.rows) >= _STREAM_NUMBERS
        return sum(map(len, self._payloads)) >= _SEGMENT_BYTES

    def add(self, name: str, tensor: BitTensor, *, small: bool) -> None:
        if small and tensor.words.size >= _FEWEST:
            self._stream = self._stream or _StreamWriter()
            found = self._stream.add(tensor, len(self.rows))
            if found:
                codec, stored = found
                self._append(name, tensor, stored, codec, b"")
                return
        words, stored = narrow(tensor.words, tensor.dtype)
        codec, payload = tensor_codecs.encode_words(words)
        self._append(name, tensor, stored, codec, payload)

    def _append(
        self, name: str, tensor: BitTensor, stored: str, codec: str, payload: bytes
    ) -> None:
        row = TensorRow(
            name=name,
            dtype=tensor.dtype,
            stored=stored,
            shape=tensor.shape,
            codec=codec,
            size_bytes=len(payload),
        )
        self.rows.append(row)
        self._payloads.append(payload)

    def finish(self) -> Segment:
        if self._stream is not None:
            for place, payload in self._stream.finish():
                self._payloads[place] = payload
                self.rows[place] = replace(self.rows[place], size_bytes=len(payload))
        has_halves = self._stream is not None and self._stream.has_halves
        return Segment(self.rows, b"".join(self._payloads), has_halves)


class _StreamWriter:
    """The context-coded tensors of a segment."""

    def __init__(self) -> None:
        self.numbers = 0
        self._writer = ContextWriter()
        self._heads: list[tuple[int, bytes]] = []

    @property
    def has_halves(self) -> bool:
        return self._writer.has_halves

    def add(self, tensor: BitTensor, place: int) -> tuple[str, str] | None:
        """Write `tensor`, number `place` of the segment, unless other codecs make it smaller.

        Returns:
            Its codec and the format of its words; None if it was not written.
        """
        meaning = meaning_of(tensor)
        if meaning is None:
            return None
        order0 = _order0_bytes(meaning.integers)
        trial = self._writer.trial(meaning.integers, halved=order0 >= _HALVED_BYTES)
        if trial.size_bytes > order0:
            words, _ = narrow(tensor.words, tensor.dtype)
            other = len(tensor_codecs.encode_words(words)[1])
            if other <= len(meaning.head) + trial.size_bytes:
                return None
        self._writer.accept(trial)
        self.numbers += tensor.words.size
        self._heads.append((place, meaning.head))
        return meaning.codec, meaning.stored

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the bytes of each written tensor."""
        for (place, head), coded in zip(self._heads, self._writer.finish(), strict=True):
            yield place, head + coded.head + coded.words


def _order0_bytes(integers: NDArray[np.signedinteger[Any]]) -> float:
    """Return the order-0 entropy; if context coding reaches it, other codecs are not tried."""
    low = int(integers.min(initial=0))
    span = int(integers.max(initial=0)) - low
    if span >= 1 << 16 or not integers.size:
        return 0.0
    shifted = np.subtract(integers, low, dtype=np.int32)
    counts = count_symbols(shifted.astype(np.uint16).reshape(-1))
    counts = counts[counts > 0]
    return float((counts * np.log2(integers.size / counts)).sum()) / 8


def read_segment(
    data: bytes | memoryview, rows: Sequence[TensorRow]
) -> Iterator[tuple[TensorRow, BitTensor]]:
    """Yield the tensors of `rows`, the rows of the segment `data`, one at a time.

    Raises:
        StorageError: They are damaged, or exceed the available memory.
    """
    source = ByteReader(data)
    payloads = [source.take(row.size_bytes) for row in rows]
    stream: Iterator[Words] = iter(())
    if any(row.in_stream for row in rows):
        pairs = zip(rows, payloads, strict=True)
        stream = _read_stream([(row, part) for row, part in pairs if row.in_stream])
    for row, payload in zip(rows, payloads, strict=True):
        yield row, _read(row, payload, stream)


def _read(row: TensorRow, payload: memoryview, stream: Iterator[Words]) -> BitTensor:
    try:
        words = next(stream) if row.in_stream else _read_alone(row, payload)
    except StorageError as error:
        raise StorageError(f"Tensor {row.name!r}: {error}") from error
    except MemoryError as error:
        size = row.count * WIDTHS[row.dtype]
        raise StorageError(
            f"Tensor {row.name!r} takes {size} bytes, more than there is memory. If the file is "
            f"not from you, it may be hostile; if it is, read it on a larger machine."
        ) from error
    return BitTensor(dtype=row.dtype, shape=row.shape, words=words)


def _read_alone(row: TensorRow, payload: memoryview) -> Words:
    if pays_off(row.count):
        from nncfx.storage.codecs.tensor_kernel import decoded  # with it comes numba

        words = decoded(row.codec, payload, row.count, WIDTHS[row.stored])
        if words is not None:
            return widen(words, row.stored, row.dtype)
    source = ByteReader(payload)
    widening = None if row.stored == row.dtype else _widening(row)
    words = tensor_codecs.decode_words(row.codec, source, row.count, WIDTHS[row.stored], widening)
    source.finish()
    return words


def _widening(row: TensorRow) -> Callable[[Words], Words]:
    return lambda words: widen(words, row.stored, row.dtype)


def _read_stream(parts: Sequence[tuple[TensorRow, memoryview]]) -> Iterator[Words]:
    sources = [ByteReader(part) for _, part in parts]
    rows = [row for row, _ in parts]
    makers = [
        read_meaning(row.codec, source, WIDTHS[row.stored], row.shape)
        for row, source in zip(rows, sources, strict=True)
    ]
    tensors = [(source, row.shape) for row, source in zip(rows, sources, strict=True)]
    for row, made, (integers, layout) in zip(rows, makers, read_stream(tensors), strict=True):
        yield to_words(integers, layout, row.shape, made, _widening(row))
