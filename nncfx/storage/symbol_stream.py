"""Streams of symbols: fixed-width or Huffman, whichever is smaller.

The first byte says which. In [0, 16] it is a width: the smallest symbol follows as varint, then
each symbol less that one in that many bits, highest bit first, padded with zeros (width 0: all
symbols are equal, no bits). 32 is a Huffman stream (see `huffman`). No symbols take no bytes.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage import huffman
from nncfx.storage.byte_reader import ByteReader, varint

__all__ = ["decode_symbols", "encode_symbols", "pack_bits", "symbols_size", "unpack_bits"]

Symbols: TypeAlias = NDArray[np.unsignedinteger[Any]]

HUFFMAN = 32
_WIDEST = 16
_CHUNK = 1 << 20


def pack_bits(symbols: Symbols, width: int) -> bytes:
    """Return each of `symbols`, below 2**width, in `width` bits in [0, 16], highest bit first.

    >>> pack_bits(np.array([1, 2, 3], dtype=np.uint16), 4).hex()
    '1230'
    """
    parts = []
    for start in range(0, symbols.size if width else 0, _CHUNK):
        chunk = symbols[start : start + _CHUNK]
        if width == 8:  # noqa: PLR2004 (whole bytes)
            parts.append(chunk.astype(np.uint8).tobytes())
            continue
        cells = chunk.astype(">u2").view(np.uint8).reshape(-1, 2)
        bits = np.unpackbits(cells, axis=1)[:, _WIDEST - width :]
        parts.append(np.packbits(bits).tobytes())
    return b"".join(parts)


def unpack_bits(source: ByteReader, count: int, width: int) -> NDArray[np.uint16]:
    """Return the next `count` symbols that `pack_bits` wrote, and check the padding.

    Raises:
        StorageError: The bytes end too early, or a padding bit is not 0.
    """
    size = (count * width + 7) // 8
    raw = np.frombuffer(source.take(size), dtype=np.uint8)
    if raw.size and int(raw[-1]) & ((1 << (-count * width % 8)) - 1):
        raise StorageError("The file is damaged: padding bits are not zero.")
    if width == 8:  # noqa: PLR2004 (whole bytes)
        return raw.astype(np.uint16)
    out = np.zeros(count, dtype=np.uint16)
    for start in range(0, count if width else 0, _CHUNK):
        chunk = out[start : start + _CHUNK]
        first = start * width // 8
        bits = np.unpackbits(raw[first:], count=chunk.size * width).reshape(-1, width)
        for column in range(width):
            chunk |= bits[:, column].astype(np.uint16) << (width - 1 - column)
    return out


def _fixed(counts: NDArray[np.int64]) -> tuple[int, int]:
    used = np.flatnonzero(counts)
    low = int(used[0])
    return low, (int(used[-1]) - low).bit_length()


def symbols_size(counts: NDArray[np.int64]) -> int:
    """Return the exact size in bytes of the stream of symbols that occur `counts` times."""
    total = int(counts.sum())
    if not total:
        return 0
    low, width = _fixed(counts)
    fixed = 1 + len(varint(low)) + (total * width + 7) // 8
    return min(fixed, 1 + huffman.encoded_size(counts)) if width else fixed


def encode_symbols(symbols: Symbols) -> bytes:
    """Return `symbols`, 1-D and below 65,536, as the smaller of the two streams.

    >>> encode_symbols(np.array([5, 5, 5], dtype=np.uint8)).hex()
    '0005'
    """
    if not symbols.size:
        return b""
    low, width = _fixed(huffman.count_symbols(symbols))
    head = bytes([width]) + varint(low)
    if not width:
        return head
    coded = huffman.encode(symbols)
    if 1 + len(coded) < len(head) + (symbols.size * width + 7) // 8:
        return bytes([HUFFMAN]) + coded
    return head + pack_bits((symbols - symbols.dtype.type(low)), width)


def decode_symbols(source: ByteReader, count: int) -> NDArray[np.uint16]:
    """Return the next `count` symbols of `source`.

    Allocates in proportion to `count`, which the caller has bounded, and to the bytes read.

    Raises:
        StorageError: The stream is damaged or cut off.
    """
    if not count:
        return np.zeros(0, dtype=np.uint16)
    mode = source.take(1)[0]
    if mode == HUFFMAN:
        return huffman.decode(source, count)
    low = source.varint()
    if mode > _WIDEST or low >= 1 << _WIDEST:
        raise StorageError(f"The file is damaged: a symbol stream of kind {mode}, from {low} on.")
    symbols = unpack_bits(source, count, mode)
    if int(symbols.max()) + low >= 1 << _WIDEST:
        raise StorageError("The file is damaged: a symbol exceeds 16 bits.")
    return symbols + np.uint16(low)
