"""The `.nncfx` container, which stores tensors as bits in few bytes; see docs/format.md."""

import functools
import json
import math
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from nncfx.errors import StorageError
from nncfx.storage.checksum import crc32
from nncfx.storage.codecs.number_formats import WIDTHS, BitTensor
from nncfx.storage.compiled import pays_off, prepare
from nncfx.storage.formats.segments import CODECS, Mode, TensorRow, read_segment, segments_of
from nncfx.untrusted import inflate, read_json

MAGIC = b"\x89NNCFX\r\n"
READABLE = (1, 2, 3, 4)
"""The versions that can be read; 1 has no ANS streams, 2 no context codecs, 3 no tensors in two
lanes, and they are otherwise the same. A file has the lowest version that suffices, at least 2."""

LARGEST_HEADER = 1 << 23
"""The most bytes of JSON in a header."""

_PREFIX = struct.Struct("<8sIIII")  # magic, version, stored bytes, JSON bytes, crc32 of the stored
_LARGEST_TENSOR = 1 << 40

_THREADS = min(4, os.cpu_count() or 1)
"""Threads that read segments, and also the number of segments that are read ahead."""
_WORTH_A_THREAD = 1 << 17
"""Context-coded numbers, which take some 8 ms; waking a thread takes 0.2 ms."""
_FAST_WORTH_A_THREAD = 1 << 19
"""Numbers of other codecs, which take 2 ms or more."""
_LARGEST_AHEAD = 1 << 24
"""Numbers of a segment; larger segments are in memory one at a time."""

_Tensors: TypeAlias = Iterator[tuple[TensorRow, BitTensor]]
_Begun: TypeAlias = Callable[[], Iterable[tuple[TensorRow, BitTensor]]]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a file.

    Attributes:
        tensors: Name to tensor, in order.
        same: Alias of a tensor to the name under which it is stored.
        sizes: Module name to size attribute to value, see `module_sizes`.
        metadata: Any JSON values, which the container does not interpret.
    """

    tensors: Mapping[str, BitTensor]
    same: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Header:
    """The checked header of a file; `segments` are (tensors, bytes, crc32) of runs of tensors."""

    rows: tuple[TensorRow, ...]
    segments: tuple[tuple[int, int, int], ...]
    same: dict[str, str]
    sizes: dict[str, dict[str, Any]]
    metadata: dict[str, Any]
    size_bytes: int

    @property
    def keys(self) -> dict[str, TensorRow]:
        """Return every name, including aliases, with the row of its tensor."""
        rows = {row.name: row for row in self.rows}
        return rows | {name: rows[first] for name, first in self.same.items()}

    def spans(self, file_size: int) -> Iterator[tuple[str, "Span"]]:
        """Yield the name and the segment of each stored tensor in a file of `file_size` bytes."""
        begin, first = file_size - self.size_bytes, 0
        for count, size, crc in self.segments:
            rows = self.rows[first : first + count]
            span = Span(rows=rows, segment=slice(begin, begin + size), crc=crc)
            for row in rows:
                yield row.name, span
            begin, first = begin + size, first + count


@dataclass(frozen=True, kw_only=True)
class Span:
    """The place of a segment in a file, the rows of its tensors and its checksum."""

    rows: tuple[TensorRow, ...]
    segment: slice
    crc: int

    def slice_of(self, row: TensorRow) -> slice:
        """Return the place of the bytes of `row`, which must be one of the rows."""
        begin = self.segment.start
        for one in self.rows:
            if one == row:
                break
            begin += one.size_bytes
        return slice(begin, begin + row.size_bytes)

    def check(self, file: memoryview) -> None:
        """Check the segment in the whole `file`.

        Raises:
            StorageError: Its checksum does not match.
        """
        # release it right away: an error that held it would keep a mapped file from being closed
        with file[self.segment] as segment:
            _check_segment(segment, self.crc)


def pack(contents: Contents, mode: Mode = "auto") -> bytes:
    """Return `contents` as the bytes of a container; `mode` is that of `nncfx.storage.save`.

    Raises:
        ArgumentError: The mode is unknown.
        StorageError: The header would be too long.
    """
    segments = list(segments_of(contents.tensors, mode))
    rows = [row for segment in segments for row in segment.rows]
    header = {
        "tensors": [
            [one.name, one.dtype, one.stored, list(one.shape), one.codec, one.size_bytes]
            for one in rows
        ],
        "segments": [[len(one.rows), crc32(one.data)] for one in segments],
        "same": dict(contents.same),
        "sizes": {name: dict(sizes) for name, sizes in contents.sizes.items()},
        "metadata": dict(contents.metadata),
    }
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > LARGEST_HEADER:
        raise StorageError(f"A header of {len(text)} bytes exceeds {LARGEST_HEADER}.")
    stored_header = zlib.compress(text, 9)
    crc = crc32(stored_header)
    version = max((one.version for one in segments), default=2)
    prefix = _PREFIX.pack(MAGIC, version, len(stored_header), len(text), crc)
    return b"".join([prefix, stored_header, *(one.data for one in segments)])


def is_container(path: str | os.PathLike[str]) -> bool:
    """Return whether the file at `path` exists and begins like a container."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(file: BinaryIO) -> Header:
    """Return the header of the container in `file`, which spans the whole file.

    Allocates at most 8 MiB of JSON text and its parsed objects, at most 25 times as much.

    Raises:
        StorageError: It is not a container, of a newer version, damaged, truncated or too long.
    """
    end = file.seek(0, 2)
    file.seek(0)
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        raise StorageError(
            f"'{getattr(file, 'name', 'this')}' is not a .nncfx file: it does not begin with its "
            "signature. Give one that nncfx.storage.save or CompressionResult.save wrote; what "
            "nncfx.save wrote is a checkpoint, which nncfx.load reads."
        )
    _, version, stored, raw, crc = _PREFIX.unpack(prefix)
    if version not in READABLE:
        raise StorageError(
            f"The file has format version {version} and this reader knows {READABLE[-1]}. "
            f"Read it with the nncfx that wrote it, or a newer one."
        )
    if stored > end - _PREFIX.size or raw > LARGEST_HEADER:
        raise StorageError(f"The file is truncated or damaged: a header of {stored} bytes.")
    text = file.read(stored)
    if len(text) != stored or crc32(text) != crc:
        raise StorageError("The file is damaged: the checksum of its header does not match.")
    header = _checked_header(text, raw, end - _PREFIX.size - stored)
    if version < 3:  # noqa: PLR2004 (see READABLE)
        _require(not any(row.since_version_3 for row in header.rows), "tensors")
    return header


def _checked_header(stored: bytes, size: int, payload: int) -> Header:
    try:
        text = inflate(stored, size)
        header = read_json(text)
    except ValueError as error:
        raise StorageError(f"The file is damaged: its header cannot be read: {error}.") from error
    if len(text) != size:
        raise StorageError("The file is damaged: its header does not have the length announced.")
    parts = ("tensors", "segments", "same", "sizes", "metadata")
    kinds = (list, list, dict, dict, dict)
    if not isinstance(header, dict) or tuple(header) != parts:
        raise StorageError(
            f"The file is damaged: its header is not an object of {', '.join(parts)}."
        )
    for part, kind in zip(parts, kinds, strict=True):
        _require(isinstance(header[part], kind), part)
    rows = tuple(_checked_row(row) for row in header["tensors"])
    names = {row.name for row in rows}
    _require(len(names) == len(rows), "tensors")
    same = header["same"]
    for name, first in same.items():
        _require(name not in names and isinstance(first, str) and first in names, "same")
    for sizes in header["sizes"].values():
        _require(isinstance(sizes, dict), "sizes")
    segments = tuple(_checked_segments(header["segments"], rows))
    total = sum(size for _, size, _ in segments)
    if total != payload:
        raise StorageError(
            f"The file is truncated or has bytes left over: its tensors take {total} bytes "
            f"where {payload} are. Copy it again from where it was written."
        )
    return Header(
        rows=rows,
        segments=segments,
        same=same,
        sizes=header["sizes"],
        metadata=header["metadata"],
        size_bytes=payload,
    )


def _require(holds: bool, part: str) -> None:
    if not holds:
        raise StorageError(f"The file is damaged: {part!r} in its header is invalid.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_TENSOR


def _checked_row(row: object) -> TensorRow:
    if not isinstance(row, list) or len(row) != 6:  # noqa: PLR2004 (fields of a row)
        raise StorageError(
            "The file is damaged: a tensor's row in its header does not have 6 fields."
        )
    name, dtype, stored, shape, codec, size = row
    _require(isinstance(name, str) and _is_count(size), "tensors")
    _require(isinstance(dtype, str) and dtype in WIDTHS, "tensors")
    _require(isinstance(stored, str) and stored in WIDTHS, "tensors")
    _require(isinstance(codec, str) and codec in CODECS, "tensors")
    _require(isinstance(shape, list) and len(shape) <= 64, "tensors")  # noqa: PLR2004 (torch's)
    _require(all(_is_count(d) for d in shape), "tensors")
    _require(math.prod(d or 1 for d in shape) <= _LARGEST_TENSOR, "tensors")
    return TensorRow(
        name=name, dtype=dtype, stored=stored, shape=tuple(shape), codec=codec, size_bytes=size
    )


def _checked_segments(
    segments: list[object], rows: tuple[TensorRow, ...]
) -> Iterator[tuple[int, int, int]]:
    at = 0
    for segment in segments:
        if not isinstance(segment, list) or len(segment) != 2:  # noqa: PLR2004 (count and crc)
            raise StorageError(
                "The file is damaged: a segment in its header does not have 2 fields."
            )
        count, crc = segment
        _require(_is_count(count) and _is_count(crc) and 0 < count <= len(rows) - at, "segments")
        yield count, sum(row.size_bytes for row in rows[at : at + count]), crc
        at += count
    _require(at == len(rows), "segments")


def read_tensors(
    file: BinaryIO, header: Header, *, max_bytes: int | None = None
) -> Iterator[tuple[TensorRow, BitTensor]]:
    """Yield every stored tensor with its row, in order.

    Compiled loops read large enough segments ahead, in threads.

    Args:
        file: The file from which `header` was read.
        header: Its header.
        max_bytes: The most bytes that all tensors together may take in memory; by default 1 MiB
            plus 4,096 times the file. A larger claim is refused before anything is decoded.

    Raises:
        StorageError: The tensors are damaged or larger than `max_bytes`.
    """
    check_size(header, header.rows, max_bytes)
    prepare(sum(row.count for row in header.rows))
    file.seek(-header.size_bytes, 2)
    begun: deque[_Begun] = deque()
    at = 0
    with ThreadPoolExecutor(_THREADS) as threads:
        for count, size, crc in header.segments:
            rows = header.rows[at : at + count]
            at += count
            numbers = sum(row.count for row in rows)
            is_large = numbers > _LARGEST_AHEAD
            while begun and (is_large or len(begun) > _THREADS):
                yield from begun.popleft()()
            read = functools.partial(_checked, file.read(size), crc, rows)
            is_alone = not begun and at == len(header.rows)
            if is_large or is_alone:
                yield from read()
            elif _is_worth_a_thread(rows, numbers):
                begun.append(threads.submit(list, read()).result)
            else:
                begun.append(read)
        while begun:
            yield from begun.popleft()()


def _is_worth_a_thread(rows: Sequence[TensorRow], numbers: int) -> bool:
    in_stream = any(row.in_stream for row in rows)
    least = _WORTH_A_THREAD if in_stream else _FAST_WORTH_A_THREAD
    return numbers >= least and pays_off(numbers)


def _checked(data: bytes, crc: int, rows: Sequence[TensorRow]) -> _Tensors:
    _check_segment(data, crc)
    yield from read_segment(data, rows)


def check_size(header: Header, rows: Sequence[TensorRow], max_bytes: int | None) -> None:
    """Check that the tensors of `rows` do not claim more memory than `max_bytes`.

    Raises:
        StorageError: They do; by default, more than 1 MiB plus 4,096 times the file.
    """
    limit = 4096 * header.size_bytes + (1 << 20) if max_bytes is None else max_bytes
    total = sum(row.count * WIDTHS[row.dtype] for row in rows)
    if total > limit:
        raise StorageError(
            f"The tensors of the file take {total} bytes in memory, more than the {limit} "
            f"allowed. If you trust the file, pass max_bytes={total}."
        )


def _check_segment(data: bytes | memoryview, crc: int) -> None:
    if crc32(data) != crc:
        raise StorageError("The file is damaged: the checksum of a segment does not match.")
