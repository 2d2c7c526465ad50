"""Channel counts (widths) that a runtime computes efficiently."""

from collections.abc import Sequence
from typing import Final

from nncfx.graph.channels import Channels
from nncfx.targets import Alignment, Target, target_named

_MOSTLY: Final = 0.75
"""The fraction of the removal that the best widths must keep; else second-best ones are used."""


def resolve_alignment(align: int | str | Alignment | Target) -> Alignment:
    """Return the alignment for a multiple or a target; an alignment is returned unchanged.

    Raises:
        ArgumentError: `align` is less than 1, or a target whose widths are unknown.
    """
    if isinstance(align, (str, Target)):
        alignment = target_named(align, "alignment").alignment
        assert alignment is not None  # noqa: S101 (requested above)
        return alignment
    return align if isinstance(align, Alignment) else Alignment(align)


def alignments_of(channels: Channels, alignment: Alignment) -> Sequence[Alignment]:
    """Return the widths that are allowed for the layer that creates each prunable set.

    They are the widths of `alignment` that the operations reading the channels also accept.
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
    """Return how many of `size` groups to keep so that their layer has an allowed width.

    At least `count` are kept: the next allowed width, or all groups if there is none. If that
    would keep more than a quarter of the groups to remove, and the alignment has a `step`, the
    next multiple of the step is used. An alignment that rounds `down` keeps at most `count` if an
    allowed width is that small, else the smallest allowed width. Keeping all groups is always
    allowed.

    Args:
        count: How many groups to keep if any width were allowed.
        size: How many groups there are.
        alignment: The allowed widths.
        each: How many entries of its layer a group has.
        minimum: The smallest number of groups to keep; at least 1.

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
