"""Represent a tensor of few distinct values exactly by small codes and a table.

Values are compared by their bits, so NaNs survive and -0.0 differs from 0.0. Code 0 is reserved
for the value whose bits are all zero, whether or not it occurs.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError

_CHUNK = 1 << 18


class Codebook(NamedTuple):
    """An array as `values[codes]`; `values[0]` is zero and the rest ascend as unsigned bits."""

    codes: NDArray[np.uint16]
    values: NDArray[Any]


def as_words(values: NDArray[Any]) -> NDArray[np.unsignedinteger[Any]]:
    """Return the bits of the contiguous `values`, of 1, 2, 4 or 8 bytes, as unsigned numbers."""
    return values.view(f"<u{values.dtype.itemsize}")


def to_codes(values: NDArray[Any], limit: int = 256) -> Codebook | None:
    """Return codes and codebook of `values`, or None if too many values are distinct.

    Args:
        values: Any shape, any numbers of 1, 2, 4 or 8 bytes; the codes have the same shape.
        limit: The most distinct non-zero values, in [0, 65535].

    >>> book = to_codes(np.array([0.5, 0.0, -1.0, 0.5]))
    >>> book.codes.tolist(), book.values.tolist()
    ([1, 0, 2, 1], [0.0, 0.5, -1.0])
    """
    words = as_words(np.ascontiguousarray(values).reshape(-1))
    if words.itemsize == 1:
        return _codes_of_bytes(words, values, limit)
    book = np.zeros(1, dtype=words.dtype)
    codes = np.empty(words.size, dtype=np.uint16)
    start = 0
    while start < words.size:
        chunk = words[start : start + _CHUNK]
        found = np.minimum(np.searchsorted(book, chunk), book.size - 1)
        unknown = chunk[book[found] != chunk]
        if unknown.size:
            # Add new values from a sample, then code all chunks again with the new codebook.
            book = np.union1d(book, unknown[:: max(1, unknown.size // 8192)])
            if book.size > limit + 1:
                return None
            start = 0
            continue
        codes[start : start + chunk.size] = found
        start += chunk.size
    return Codebook(codes.reshape(values.shape), book.view(values.dtype))


def _codes_of_bytes(words: NDArray[Any], values: NDArray[Any], limit: int) -> Codebook | None:
    is_known = np.zeros(256, dtype=np.bool_)
    is_known[words] = True
    is_known[0] = True
    book = np.flatnonzero(is_known)
    if book.size > limit + 1:
        return None
    codes = (np.cumsum(is_known) - 1).astype(np.uint16)[words]
    return Codebook(codes.reshape(values.shape), book.astype(words.dtype).view(values.dtype))


def from_codes(codes: NDArray[np.unsignedinteger[Any]], values: NDArray[Any]) -> NDArray[Any]:
    """Return `values[codes]`.

    Raises:
        StorageError: A code has no value.
    """
    if codes.size and int(codes.max()) >= values.size:
        raise StorageError(
            f"The file is damaged: code {int(codes.max())} in a codebook of {values.size} values."
        )
    taken: NDArray[Any] = values[codes]
    return taken
