"""The cost of copying some channels of a tensor on a target."""

from dataclasses import dataclass
from typing import Final

from nncfx.targets.alignment import Alignment

_ANY_WIDTH: Final = Alignment(1)


@dataclass(frozen=True, kw_only=True)
class SelectionCost:
    """Costs of selecting channels, in nanoseconds of one processor core.

    Attributes:
        slice_ns: Per slice, whatever its size.
        slice_number_ns: Per number that a slice copies.
        is_slice_view: Whether a slice that is contiguous in memory copies nothing.
        gather_ns: Per gather.
        gather_number_ns: Per number that a gather copies.
        mac_ns: Per multiply-accumulate of a convolution or a linear layer.
        read_number_ns: Per number that a convolution or a linear layer reads, in addition.
        layout_number_ns: Per number of a tensor from which anything is selected: a runtime that
            stores channels in blocks first converts it to rows. Counted once per tensor.
        alignment: The widths that are computed efficiently; others cost as much as the next one.
    """

    slice_ns: float
    slice_number_ns: float
    is_slice_view: bool
    gather_ns: float
    gather_number_ns: float
    mac_ns: float
    read_number_ns: float = 0.0
    layout_number_ns: float = 0.0
    alignment: Alignment = _ANY_WIDTH
