"""Number formats by their safetensors names, and exact narrowing to smaller formats.

Tensors are handled as their bits (unsigned numbers of 1, 2, 4 or 8 bytes), so every torch format
survives bitwise, including those that numpy lacks.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError

Words: TypeAlias = NDArray[np.unsignedinteger[Any]]

WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
"""Bytes of one number, by format name."""

_NARROWER = {
    "F32": ("F16", "BF16"),
    "F64": ("F16", "BF16", "F32"),
    "I16": ("I8",),
    "I32": ("I8", "I16"),
    "I64": ("I8", "I16", "I32"),
}
_NUMPY = {
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "UI" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "BOOL": "?",
    "C64": "<c8",
}
_SAMPLE = 4096
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, eq=False)
class BitTensor:
    """A tensor as bits: `words`, flat in C order, of the width of `dtype`.

    Attributes:
        dtype: The format, a key of `WIDTHS`.
        shape: Its dimensions; their product is the number of words.
        words: Unsigned numbers of `WIDTHS[dtype]` bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    words: Words

    def __post_init__(self) -> None:
        """Check that format, shape and words are consistent."""
        width = WIDTHS.get(self.dtype)
        count = math.prod(self.shape)
        if width is None or (self.words.dtype.itemsize, self.words.shape) != (width, (count,)):
            raise StorageError(
                f"{self.words.size} words of {self.words.dtype} are not a tensor of format "
                f"{self.dtype!r} and shape {self.shape}."
            )

    def array(self) -> NDArray[Any]:
        """Return the tensor as a numpy array that shares the words.

        Raises:
            StorageError: numpy lacks the format (BF16, F8).
        """
        if self.dtype not in _NUMPY:
            raise StorageError(
                f"numpy has no {self.dtype}; take the words, or read with load_state, which "
                "returns torch's tensors."
            )
        return self.words.view(_NUMPY[self.dtype]).reshape(self.shape)


def _numbers(words: Words, dtype: str) -> NDArray[Any]:
    kind = "f" if dtype.startswith("F") else "i"
    return words.view(f"<{kind}{words.dtype.itemsize}")


def _bits(values: NDArray[Any]) -> Words:
    words: Words = values.view(f"<u{values.dtype.itemsize}")
    return words


def _convert(words: Words, source: str, target: str) -> Words:
    if target == "BF16":
        return (_convert(words, source, "F32") >> 16).astype("<u2")
    if source == "BF16":
        wide: Words = words.astype("<u4")
        return _convert(np.left_shift(wide, 16), "F32", target)
    if source == target:
        return words
    kind = "f" if target.startswith("F") else "i"
    with np.errstate(all="ignore"):
        return _bits(_numbers(words, source).astype(f"<{kind}{WIDTHS[target]}"))


def narrow(words: Words, dtype: str) -> tuple[Words, str]:
    """Return `words` in the smallest format that holds every word exactly, and its name.

    Exact means bitwise: words whose bits would change (some NaNs) are not narrowed.
    """
    for target in _NARROWER.get(dtype, ()):
        starts = range(0, words.size, _CHUNK)
        if _survives(words[:_SAMPLE], dtype, target) and all(
            _survives(words[start : start + _CHUNK], dtype, target) for start in starts
        ):
            return _convert(words, dtype, target), target
    return words, dtype


def _survives(words: Words, dtype: str, target: str) -> bool:
    return np.array_equal(_convert(_convert(words, dtype, target), target, dtype), words)


def widen(words: Words, stored: str, dtype: str) -> Words:
    """Return `words` of format `stored` in format `dtype`, the inverse of `narrow`.

    Raises:
        StorageError: `stored` is not a format that `narrow` returns for `dtype`.
    """
    if stored != dtype and stored not in _NARROWER.get(dtype, ()):
        raise StorageError(f"The file is damaged: {stored!r} numbers for a tensor of {dtype!r}.")
    return words if stored == dtype else _convert(words, stored, dtype)
