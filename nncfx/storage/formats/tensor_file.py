"""Random access to the tensors of a `.nncfx` file, without torch."""

import itertools
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any, final

from typing_extensions import override

from nncfx.closing import Closing
from nncfx.errors import StorageError, did_you_mean
from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.container import Span, check_size, read_header, read_tensors
from nncfx.storage.formats.segments import TensorRow, read_segment
from nncfx.storage.formats.whole_file import naming, open_file

_KEPT_NUMBERS = 1 << 19


@final
class TensorFile(Closing):
    """The tensors of a file by name, each read from the mapped file on access.

    A tensor is decoded again at every read, and only its segment (itself, or neighbours of up to
    4,096 bytes) is read and checked. In addition to the tensor, this takes the memory that
    `decode_words` states. If small tensors share a context-coded stream, the whole stream is
    decoded, and each tensor is kept until its first read or until another stream is read. Close
    the file, or use it in a `with` statement.

    Attributes:
        names: The names of all tensors, in file order, followed by the aliases of tied tensors.
        rows: The rows of all stored tensors, in file order.
        same: Alias of a tied tensor to the name under which it is stored.
        sizes: Module name to size attribute to value.
        metadata: The saved metadata.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int | None = None) -> None:
        """Open the file at `path`.

        Args:
            path: A file that `save` or `pack_safetensors` wrote.
            max_bytes: The most memory that one tensor may take; by default 1 MiB plus 4,096
                times the file.

        Raises:
            StorageError: The file does not exist, or its header is damaged or hostile.
        """
        self._path = path
        self._file = open_file(path)
        try:
            with naming(path):
                self._header = read_header(self._file)
            self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except BaseException:
            self._file.close()
            raise
        self._max_bytes = max_bytes
        self._rows = self._header.keys
        self._spans = dict(self._header.spans(len(self._bytes)))
        self._checked: set[int] = set()
        self._kept: dict[str, BitTensor] = {}
        self.names = tuple(self._rows)
        self.rows = self._header.rows
        self.same: Mapping[str, str] = self._header.same
        self.sizes: Mapping[str, Mapping[str, Any]] = self._header.sizes
        self.metadata: Mapping[str, Any] = self._header.metadata

    def read(self, name: str) -> BitTensor:
        """Return the tensor `name`.

        Raises:
            StorageError: The tensor does not exist, or is damaged or too large.
        """
        with naming(self._path):
            return self._read(name)

    def _read(self, name: str) -> BitTensor:
        if name not in self._rows:
            raise StorageError(f"The file has no tensor '{name}'.{did_you_mean(name, self.names)}")
        row = self._rows[name]
        check_size(self._header, [row], self._max_bytes)
        span = self._spans[row.name]
        if span.segment.start not in self._checked:
            with memoryview(self._bytes) as whole:
                span.check(whole)
            self._checked.add(span.segment.start)
        if not row.in_stream:
            return next(read_segment(self._bytes[span.slice_of(row)], [row]))[1]
        if row.name not in self._kept:
            self._kept = self._read_stream(row, span)
        return self._kept.pop(row.name)

    def _read_stream(self, wanted: TensorRow, span: Span) -> dict[str, BitTensor]:
        """Return the small tensors of a stream, and `wanted`."""
        rows = [row for row in span.rows if row.in_stream]
        needed = rows[: rows.index(wanted) + 1]
        small = list(itertools.takewhile(lambda row: row.count <= _KEPT_NUMBERS, rows))
        needed = max(needed, small, key=len)
        check_size(self._header, needed, self._max_bytes)
        data = b"".join(self._bytes[span.slice_of(row)] for row in rows)
        found = itertools.islice(read_segment(data, rows), len(needed))
        return {row.name: one for row, one in found if row == wanted or row.count <= _KEPT_NUMBERS}

    def stream(self) -> Iterator[tuple[TensorRow, BitTensor]]:
        """Yield every stored tensor with its row in file order, tied tensors once.

        Raises:
            StorageError: A tensor is damaged, or all together are larger than `max_bytes`.
        """
        with naming(self._path):
            yield from read_tensors(self._file, self._header, max_bytes=self._max_bytes)

    @override
    def close(self) -> None:
        """Close the file; closing it again does nothing."""
        self._bytes.close()
        self._file.close()
