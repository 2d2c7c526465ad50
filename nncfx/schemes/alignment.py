"""Widths that a runtime computes without waste."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from nncfx.errors import ArgumentError, did_you_mean

__all__ = ["ALIGNMENTS", "Alignment", "aligned_counts", "resolve_alignment"]


@dataclass(frozen=True)
class Alignment:
    """Which widths a layer that loses channels may have.

    Attributes:
        multiple: widths from it on are multiples of it; at least 1.
        step: widths below `multiple` are multiples of it; None: there are none.
    """

    multiple: int
    step: int | None = None

    def allows(self, width: int) -> bool:
        """Return whether a layer may be `width` channels wide.

        >>> [width for width in range(40) if Alignment(16, 4).allows(width)]
        [4, 8, 12, 16, 32]
        """
        if 0 < width < self.multiple:
            return self.step is not None and width % self.step == 0
        return width > 0 and width % self.multiple == 0


ALIGNMENTS: Final[Mapping[str, Alignment]] = MappingProxyType(
    {
        "onnxruntime": Alignment(16, 4),
        "openvino": Alignment(16, 4),
        "tensorrt": Alignment(8),
        "tensorrt-int8": Alignment(32),
    },
)
"""The widths that suit each runtime: on CPUs vectors of 16 floats, on GPUs tiles of 8 halves or 32
bytes."""


def resolve_alignment(align: int | str | Alignment) -> Alignment:
    """Return the alignment that a multiple or the name of a runtime stands for; one as it is.

    Raises:
        ArgumentError: `align` is less than 1 or the name of no runtime.
    """
    if isinstance(align, Alignment):
        return align
    if isinstance(align, str):
        if align not in ALIGNMENTS:
            raise ArgumentError(
                f"align is {align!r}, which is no runtime whose widths are known. Use one of "
                f"{', '.join(sorted(ALIGNMENTS))}, or a number.{did_you_mean(align, ALIGNMENTS)}",
            )
        return ALIGNMENTS[align]
    if align < 1:
        raise ArgumentError(f"align is {align}; widths are multiples of 1 or more.")
    return Alignment(align)


def aligned_counts(
    counts: Sequence[int],
    sizes: Sequence[int],
    entries: Sequence[int],
    alignment: Alignment,
    minimum: int,
) -> list[int]:
    """Return how many groups of each set stay so that widths are aligned, within the budget.

    A set that loses a group goes down to the next allowed width, or up to the smallest where none
    is below; losing nothing is always allowed. Widths below the multiple waste time, so sets there
    go up to it, the widest first, while what rounding down has left lasts.

    Args:
        counts: How many groups of each set would stay.
        sizes: How many groups each set has.
        entries: How many entries of its layer a group of each set has.
        alignment: The widths that are allowed.
        minimum: So many groups of each set stay in any case; at least 1.

    >>> aligned_counts([26, 14, 2], [40, 40, 40], [1, 1, 1], ALIGNMENTS["onnxruntime"], 1)
    [16, 16, 4]
    """
    found, wanted = [], []
    for count, size, each in zip(counts, sizes, entries, strict=True):
        allowed = [n for n in range(minimum, size) if alignment.allows(n * each)] + [size]
        found.append(max((n for n in allowed if n <= count), default=allowed[0]))
        wanted.append(next((n for n in allowed if n * each >= alignment.multiple), size))
    spare = sum(counts) - sum(found)
    for index in sorted(range(len(found)), key=lambda index: -counts[index]):
        step = wanted[index] - found[index]
        if 0 < step <= spare:
            spare -= step
            found[index] = wanted[index]
    return found
