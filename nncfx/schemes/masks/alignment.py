"""Widths that a runtime computes without waste."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from nncfx.errors import ArgumentError, did_you_mean

__all__ = ["ALIGNMENTS", "Alignment", "aligned_count", "resolve_alignment"]


_MOSTLY: Final = 0.75
"""So much of what was to go must go at the best widths; else second best ones are taken."""


@dataclass(frozen=True)
class Alignment:
    """Which widths a layer that loses channels may have.

    Attributes:
        multiple: widths from it on are multiples of it; at least 1.
        step: widths below `multiple` are multiples of it; None: there are none.
        down: whether `aligned_count` rounds down, so that more may go than was asked for.
    """

    multiple: int
    step: int | None = None
    down: bool = False

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


def aligned_count(
    count: int,
    size: int,
    alignment: Alignment,
    *,
    each: int = 1,
    minimum: int = 1,
) -> int:
    """Return how many of `size` groups stay, so that their layer has a width that is allowed.

    At least `count` stay: the next allowed width, all groups where there is none. Where that
    would keep more than a quarter of what was to go, and the alignment has a `step`, it is the
    next multiple of the step. One that rounds `down` lets at most `count` stay, if an allowed
    width is so small, and else the smallest. Losing nothing is always allowed.

    Args:
        count: How many groups would stay if any width were allowed.
        size: How many groups there are.
        alignment: The widths that are allowed.
        each: How many entries of its layer a group has.
        minimum: So many groups stay in any case; at least 1.

    >>> runtime = ALIGNMENTS["onnxruntime"]
    >>> [aligned_count(count, 64, runtime) for count in (64, 60, 46, 40, 30, 7)]
    [64, 60, 48, 40, 32, 8]
    """
    if count >= size:
        return size
    allowed = [n for n in range(minimum, size) if alignment.allows(n * each)] + [size]
    if alignment.down:
        return max((n for n in allowed if n <= count), default=allowed[0])
    least = max(count, minimum)
    coarse = next(n for n in allowed if n >= least)
    step = alignment.step
    if step is None or _MOSTLY * (size - count) <= size - coarse:
        return coarse
    return next((n for n in range(least, coarse) if n * each % step == 0), coarse)
