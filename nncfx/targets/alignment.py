"""Channel counts (widths) that a target computes efficiently."""

import math
from dataclasses import dataclass, replace

from nncfx.errors import ArgumentError, require_truths


@dataclass(frozen=True)
class Alignment:
    """The allowed widths of a layer that loses channels.

    Attributes:
        multiple: widths from this on are multiples of it; at least 1.
        step: widths below `multiple` are multiples of this; None: no such widths are allowed.
        down: whether `aligned_count` rounds down, so that more may be removed than requested.
    """

    multiple: int
    step: int | None = None
    down: bool = False

    def __post_init__(self) -> None:
        require_truths(self)
        for size in (self.multiple, self.step):
            if size is not None and size < 1:
                raise ArgumentError(
                    f"align is {size}; widths are multiples of 1 or more. Give 1 for any width."
                )

    def times(self, count: int) -> "Alignment":
        """Return the alignment whose widths are also multiples of `count`.

        >>> Alignment(16, 4).times(8)
        Alignment(multiple=16, step=8, down=False)
        """
        step = None if self.step is None else math.lcm(self.step, count)
        return replace(self, multiple=math.lcm(self.multiple, count), step=step)

    def allows(self, width: int) -> bool:
        """Return whether a layer can be `width` channels wide.

        >>> [width for width in range(40) if Alignment(16, 4).allows(width)]
        [4, 8, 12, 16, 32]
        """
        if 0 < width < self.multiple:
            return self.step is not None and width % self.step == 0
        return width > 0 and width % self.multiple == 0
