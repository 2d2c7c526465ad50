"""Convert safetensors files to `.nncfx` and back, tensor by tensor and without torch.

The Rust library of safetensors reads a whole file into memory, or only formats that numpy
supports; this module reads any format from a mapped file, one tensor at a time.

Source: the README of safetensors, "Format".
"""

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from nncfx.errors import StorageError
from nncfx.storage.codecs.number_formats import WIDTHS, BitTensor
from nncfx.storage.formats.container import Contents, pack
from nncfx.storage.formats.segments import Mode
from nncfx.storage.formats.tensor_file import TensorFile
from nncfx.storage.formats.whole_file import SavedFile, naming, write_whole
from nncfx.untrusted import read_json

_LENGTH = struct.Struct("<Q")
_LARGEST_HEADER = 100_000_000  # the limit of safetensors itself
_OURS = "nncfx"
_PARTS = frozenset({"same", "sizes", "metadata"})
"""The parts of a `.nncfx` file that a safetensors file keeps in its metadata, under `_OURS`."""


def pack_safetensors(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    signed_zeros: bool = True,
    mode: Mode = "auto",
) -> SavedFile:
    """Write the tensors of the safetensors file `source` as the `.nncfx` file `target`.

    The conversion is lossless, bit for bit, and keeps the text metadata. In addition to the
    compressed bytes, only one tensor is in memory at a time.

    Args:
        source: A safetensors file.
        target: The file to write; an existing file is replaced.
        signed_zeros: False writes -0.0 as 0.0, as in `save`.
        mode: The choice of codecs, as in `save`.

    Raises:
        StorageError: `source` is not a safetensors file or has a number format that a `.nncfx`
            file cannot hold, or `target` cannot be written.
    """
    tensors = _Safetensors(source, signed_zeros=signed_zeros)
    text = dict(tensors.metadata)
    with naming(source):
        ours = _own(text.get(_OURS, "{}"))
    if ours is None:  # a checkpoint has its own metadata under this name, which stays as it is
        ours = {}
    else:
        text.pop(_OURS, None)
    contents = Contents(
        tensors=tensors,
        same=ours.get("same", {}),
        sizes=ours.get("sizes", {}),
        metadata={**ours.get("metadata", {}), **({"safetensors": text} if text else {})},
    )
    for name in contents.same:
        tensors.leave_out(name)
    return write_whole(Path(target), [pack(contents, mode)])


def unpack_safetensors(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, max_bytes: int | None = None
) -> SavedFile:
    """Write the tensors of the `.nncfx` file `source` as the safetensors file `target`.

    Tied tensors are written once under each of their names. Module sizes and metadata, for which
    safetensors has no place, become JSON in the text metadata under "nncfx", from which
    `pack_safetensors` restores them. One tensor is in memory at a time.

    Args:
        source: A `.nncfx` file.
        target: The file to write; an existing file is replaced.
        max_bytes: The most memory that one tensor may take, as in `TensorFile`.

    Raises:
        StorageError: `source` is damaged or hostile, or `target` cannot be written.
    """
    with TensorFile(source, max_bytes=max_bytes) as file:
        rows = {row.name: row for row in file.rows}
        with naming(source):
            header: dict[str, object] = {"__metadata__": _text_metadata(file)}
        end = 0
        for name in file.names:
            row = rows[file.same.get(name, name)]
            begin, end = end, end + row.count * WIDTHS[row.dtype]
            header[name] = {
                "dtype": row.dtype,
                "shape": list(row.shape),
                "data_offsets": [begin, end],
            }
        return write_whole(Path(target), _safetensors_parts(header, file))


def _safetensors_parts(header: Mapping[str, object], file: TensorFile) -> Iterator[bytes]:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield _LENGTH.pack(len(text)) + text
    for name in file.names:
        yield file.read(name).words.tobytes()


def _text_metadata(file: TensorFile) -> dict[str, str]:
    metadata = dict(file.metadata)
    text = metadata.pop("safetensors", {})
    text = {str(key): str(value) for key, value in text.items()} if isinstance(text, dict) else {}
    parts = {"same": file.same, "sizes": file.sizes, "metadata": metadata}
    ours = {name: part for name, part in parts.items() if part}
    if ours and _OURS in text:
        raise StorageError(
            "The file has shared tensors, sizes of modules or metadata, and a checkpoint's as "
            f"well; both would be stored under '{_OURS}'. Read it with nncfx.storage.TensorFile."
        )
    return text | ({_OURS: json.dumps(ours, separators=(",", ":"))} if ours else {})


def _own(text: str) -> dict[str, Any] | None:
    """Return the data that `unpack_safetensors` wrote for the container; None if it did not."""
    try:
        found = read_json(text)
    except ValueError as error:
        raise StorageError(
            f"The metadata '{_OURS}' of the file is not JSON ({error}). Remove it."
        ) from error
    if isinstance(found, dict) and found.keys() - _PARTS:
        return None
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise StorageError(f"The metadata '{_OURS}' of the file is not nncfx's. Remove it.")
    return found


@final
class _Safetensors(Mapping[str, BitTensor]):
    """The tensors of a safetensors file, each copied from the mapped file on access."""

    def __init__(self, path: str | os.PathLike[str], *, signed_zeros: bool) -> None:
        self._path = path
        self._signed_zeros = signed_zeros
        try:
            self._bytes: NDArray[np.uint8] = np.memmap(path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise StorageError(
                f"'{path}' cannot be read ({error}). Name a safetensors file."
            ) from error
        header, self._begin = self._read_header()
        metadata = header.pop("__metadata__", {})
        self._require(isinstance(metadata, dict), "its metadata is not an object")
        self.metadata: dict[str, str] = {key: str(value) for key, value in metadata.items()}
        self._entries = {name: self._checked(name, entry) for name, entry in header.items()}
        spans = sorted(span for _, _, span in self._entries.values())
        ends = [0, *(end for _, end in spans)]
        self._require(
            [begin for begin, _ in spans] == ends[:-1]
            and ends[-1] == self._bytes.size - self._begin,
            "its tensors overlap or leave gaps",
        )

    def leave_out(self, name: str) -> None:
        """Leave out the tensor `name`, a copy of another tensor."""
        self._require(self._entries.pop(name, None) is not None, f"it has no tensor {name!r}")

    @override
    def __getitem__(self, name: str) -> BitTensor:
        dtype, shape, (begin, end) = self._entries[name]
        raw = np.array(self._bytes[self._begin + begin : self._begin + end])
        words = raw.view(f"<u{WIDTHS[dtype]}")
        if not self._signed_zeros and dtype[0] in "FB" and dtype != "BOOL":
            sign = words.dtype.type(1 << (8 * words.itemsize - 1))
            words[words == sign] = 0
        return BitTensor(dtype=dtype, shape=shape, words=words)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @override
    def __len__(self) -> int:
        return len(self._entries)

    def _require(self, holds: bool, fault: str) -> None:
        if not holds:
            raise StorageError(
                f"'{self._path}' is not a safetensors file, or is damaged: {fault}. Write it "
                "again."
            )

    def _read_header(self) -> tuple[dict[str, Any], int]:
        self._require(self._bytes.size >= _LENGTH.size, "it is too short")
        (length,) = _LENGTH.unpack(self._bytes[: _LENGTH.size].tobytes())
        begin = _LENGTH.size + length
        self._require(
            length <= _LARGEST_HEADER and begin <= self._bytes.size,
            f"its header would take {length} bytes",
        )
        try:
            header = read_json(self._bytes[_LENGTH.size : begin].tobytes())
        except ValueError:
            header = None
        if not isinstance(header, dict):
            self._require(holds=False, fault="its header is not a JSON object")
            header = {}
        return header, begin

    def _checked(self, name: str, entry: object) -> tuple[str, tuple[int, ...], tuple[int, int]]:
        keys = {"dtype", "shape", "data_offsets"}
        fault = f"the entry of tensor {name!r} is invalid"
        if not isinstance(entry, dict) or set(entry) != keys:
            self._require(holds=False, fault=fault)
            return "", (), (0, 0)
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        for numbers in (shape, offsets):
            valid = isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
            self._require(valid, fault)
        if dtype not in WIDTHS:
            raise StorageError(
                f"Tensor {name!r} in '{self._path}' is of format {dtype!r}, which a .nncfx file "
                f"cannot hold; it knows {', '.join(WIDTHS)}. Cast the tensor."
            )
        self._require(len(offsets) == 2, fault)  # noqa: PLR2004 (begin and end)
        begin, end = offsets
        self._require(end - begin == math.prod(shape) * WIDTHS[dtype], fault)
        return dtype, tuple(shape), (begin, end)
