"""Inspect a `.nncfx` file, with one measured row per tensor."""

import os
import zlib
from dataclasses import dataclass

import numpy as np

from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.segments import TensorRow
from nncfx.storage.formats.tensor_file import TensorFile


@dataclass(frozen=True, kw_only=True)
class InspectRow:
    """Measurements of one tensor of a file.

    Attributes:
        name: Its `state_dict` key.
        shape: Its dimensions.
        dtype: Its number format, by safetensors name.
        codec: Its codec, `index+values`.
        size_bytes: Its bytes in the file.
        bits_per_weight: Its size in bits per element; 0.0 for an empty tensor.
        entropy_bits: The order-0 entropy of its values in bits per element: a lower bound for
            codes that treat elements as independent, without their tables.
        checksum: The CRC-32 of its numbers in the byte order of safetensors; equal tensors have
            equal checksums.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    codec: str
    size_bytes: int
    bits_per_weight: float
    entropy_bits: float
    checksum: int


def inspect(path: str | os.PathLike[str], *, max_bytes: int | None = None) -> list[InspectRow]:
    """Return one measured row per stored tensor of the file at `path`, in file order.

    Tied tensors are stored and listed once.

    Args:
        path: A file that `save` wrote.
        max_bytes: As for `load_state`.

    Raises:
        StorageError: The file is damaged, hostile, or larger in memory than `max_bytes`.
    """
    with TensorFile(path, max_bytes=max_bytes) as file:
        return [_inspect_row(row, bits) for row, bits in file.stream()]


def _inspect_row(row: TensorRow, bits: BitTensor) -> InspectRow:
    _, counts = np.unique(bits.words, return_counts=True)
    shares = counts / max(1, row.count)
    return InspectRow(
        name=row.name,
        shape=row.shape,
        dtype=row.dtype,
        codec=row.codec,
        size_bytes=row.size_bytes,
        bits_per_weight=8 * row.size_bytes / max(1, row.count),
        entropy_bits=float(-(shares * np.log2(shares)).sum()) + 0.0,
        checksum=zlib.crc32(bits.words.astype(bits.words.dtype.newbyteorder("<")).tobytes()),
    )
