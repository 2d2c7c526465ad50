"""Widths that a runtime computes without waste."""

from collections.abc import Sequence
from typing import Final

from nncfx.graph.channels import Channels
from nncfx.targets import Alignment, Target, target_named

_MOSTLY: Final = 0.75
"""So much of what was to go must go at the best widths; else second best ones are taken."""


def resolve_alignment(align: int | str | Alignment | Target) -> Alignment:
    """Return the alignment that a multiple or a target stands for; one as it is.

    Raises:
        ArgumentError: `align` is less than 1, or a target whose widths are not known.
    """
    if isinstance(align, (str, Target)):
        alignment = target_named(align, "alignment").alignment
        assert alignment is not None  # noqa: S101 (asked for above)
        return alignment
    return align if isinstance(align, Alignment) else Alignment(align)


def alignments_of(channels: Channels, alignment: Alignment) -> Sequence[Alignment]:
    """Return which widths the layer that creates each prunable set may have.

    They are those of `alignment` that the calls take, too, by which the channels are read.
    """
    return [
        alignment.times(one.multiple * one.origin.indices.shape[1])
        if one.multiple > 1
        else alignment
        for one in channels.prunable
    ]


def aligned_count(
    count: int, size: int, alignment: Alignment, *, each: int = 1, minimum: int = 1
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

    >>> runtime = resolve_alignment("onnxruntime")
    >>> [aligned_count(count, 64, runtime) for count in (64, 60, 46, 40, 30, 7)]
    [64, 60, 48, 40, 32, 8]
    """
    if count >= size:
        return size

    def allowed(counts: range) -> int | None:
        return next((n for n in counts if alignment.allows(n * each)), None)

    if alignment.down:
        below = allowed(range(count, minimum - 1, -1))
        return below or allowed(range(minimum, size)) or size
    least = max(count, minimum)
    coarse = allowed(range(least, size)) or size
    step = alignment.step
    if step is None or _MOSTLY * (size - count) <= size - coarse:
        return coarse
    return next((n for n in range(least, coarse) if n * each % step == 0), coarse)
