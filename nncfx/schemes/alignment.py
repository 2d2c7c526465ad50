"""Widths that a runtime computes without waste."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from torch import Tensor

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


def resolve_alignment(align: int | str) -> Alignment:
    """Return the alignment that a multiple or the name of a runtime stands for.

    Raises:
        ArgumentError: `align` is less than 1 or the name of no runtime.
    """
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
    scores: Sequence[Tensor],
    counts: Sequence[int],
    alignment: Alignment,
    *,
    minimum: int,
    entries: Sequence[int],
    shares: bool,
) -> list[int]:
    """Return how many groups of each set stay so that widths are aligned, within the budget.

    A set that loses a group goes down to the next allowed width, or up to the smallest where none
    is below; losing nothing is always allowed. What is left of the budget is given back in steps,
    the step with the largest mean score first.

    Args:
        scores: One tensor of g scores per set.
        counts: How many groups of each set would stay; at least 1.
        alignment: The widths that are allowed.
        minimum: So many groups of each set stay in any case; at least 1.
        entries: How many entries of its layer a group of each set has.
        shares: Whether all sets have one budget; else nothing is given back.

    >>> import torch
    >>> scores = [torch.arange(40.0), torch.arange(40.0) / 2]
    >>> cpu = ALIGNMENTS["onnxruntime"]
    >>> aligned_counts(scores, [26, 14], cpu, minimum=1, entries=[1, 1], shares=True)
    [16, 16]
    """
    widths = [
        [n for n in range(minimum, len(one)) if alignment.allows(n * each)] + [len(one)]
        for one, each in zip(scores, entries, strict=True)
    ]
    aligned = [
        max((n for n in fitting if n <= count), default=fitting[0])
        for fitting, count in zip(widths, counts, strict=True)
    ]
    spare = sum(counts) - sum(aligned)
    ranked = [one.detach().sort(descending=True).values for one in scores]
    steps: list[tuple[float, int, int]] = []

    def offer(index: int) -> None:
        now = aligned[index]
        following = next((n for n in widths[index] if n > now), None)
        if following is not None:
            heapq.heappush(steps, (-float(ranked[index][now:following].mean()), index, following))

    for index in range(len(scores)):
        offer(index)
    while steps and shares and spare > 0:
        _, index, width = heapq.heappop(steps)
        if width - aligned[index] <= spare:
            spare -= width - aligned[index]
            aligned[index] = width
            offer(index)
    return aligned
