"""What selecting channels costs in a runtime, and the cheapest way to read them.

A layer can read exactly its channels (a slice where they are neighbours, else a gather), or the
shortest run that holds them, or everything; what it reads too much meets columns of zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from nncfx.errors import ArgumentError, did_you_mean

__all__ = [
    "COSTS",
    "Reading",
    "SelectionCost",
    "Work",
    "cheapest_positions",
    "is_placing_cheaper",
    "selection_cost_of",
]


@dataclass(frozen=True, kw_only=True)
class SelectionCost:
    """Nanoseconds of one processor core.

    Attributes:
        slice_ns: Per slice, whatever its size.
        slice_number_ns: Per number that a slice copies.
        is_slice_view: Whether a slice that is contiguous in memory copies nothing.
        gather_ns: Per gather.
        gather_number_ns: Per number that a gather copies.
        mac_ns: Per multiply-accumulate of a convolution or a linear layer.
    """

    slice_ns: float
    slice_number_ns: float
    is_slice_view: bool
    gather_ns: float
    gather_number_ns: float
    mac_ns: float


COSTS: Final[Mapping[str, SelectionCost]] = MappingProxyType(
    {
        "torch": SelectionCost(
            slice_ns=5000,
            slice_number_ns=0.3,
            is_slice_view=True,
            gather_ns=5000,
            gather_number_ns=0.3,
            mac_ns=0.025,
        ),
        "onnxruntime": SelectionCost(
            slice_ns=1500,
            slice_number_ns=0.28,
            is_slice_view=False,
            gather_ns=1000,
            gather_number_ns=0.3,
            mac_ns=0.008,
        ),
    },
)
"""Costs by runtime, as `benchmarks/unconstrained_costs.py` measures them."""


def selection_cost_of(target: str | SelectionCost) -> SelectionCost:
    """Return the costs of a runtime, or `target` itself if it is some.

    Raises:
        ArgumentError: no costs of that runtime are known.
    """
    if isinstance(target, SelectionCost):
        return target
    if target not in COSTS:
        raise ArgumentError(
            f"target is {target!r}; what selecting channels costs there is not known. Use one of "
            f"{', '.join(sorted(COSTS))}, or pass a SelectionCost.{did_you_mean(target, COSTS)}",
        )
    return COSTS[target]


class Work(Protocol):
    """What a layer does for one channel."""

    @property
    def pixels(self) -> int:
        """Numbers per channel in what it reads or makes."""

    @property
    def macs(self) -> float:
        """Multiply-accumulates per channel."""


class Reading(Work, Protocol):
    """How a layer reads."""

    @property
    def is_sliced_free(self) -> bool:
        """Whether a slice of its input is contiguous in memory."""


def cheapest_positions(
    live: npt.NDArray[np.bool_],
    reading: Reading,
    cost: SelectionCost,
) -> npt.NDArray[np.int64]:
    """Return the channels to read: those that live, the run around them, or all.

    At equal cost fewer are read.

    Args:
        live: for each channel whether the layer needs it; at least one.
        reading: how the layer reads.
        cost: of the runtime.

    >>> from types import SimpleNamespace
    >>> live = np.array([True, False, True, True, False, False])
    >>> small = SimpleNamespace(pixels=1, macs=10, is_sliced_free=True)
    >>> cheapest_positions(live, small, COSTS["torch"])
    array([0, 1, 2, 3, 4, 5])
    >>> large = SimpleNamespace(pixels=3136, macs=1e6, is_sliced_free=True)
    >>> cheapest_positions(live, large, COSTS["torch"])
    array([0, 2, 3])
    """
    exact = np.flatnonzero(live)
    choices = [exact, np.arange(exact[0], exact[-1] + 1), np.arange(len(live))]
    return min(choices, key=lambda chosen: _cost(chosen, len(live), reading, cost))


def is_placing_cheaper(live: npt.NDArray[np.bool_], work: Work, cost: SelectionCost) -> bool:
    """Return whether to compute only the channels that live, and put them among zeros.

    Args:
        live: for each channel that a layer makes whether it can be other than zero.
        work: of the layer for one channel.
        cost: of the runtime. Placing costs what gathering all channels does.
    """
    saved = float((~live).sum()) * work.macs * cost.mac_ns
    return saved > cost.gather_ns + len(live) * work.pixels * cost.gather_number_ns


def _cost(
    chosen: npt.NDArray[np.int64],
    width: int,
    reading: Reading,
    cost: SelectionCost,
) -> float:
    computed = len(chosen) * reading.macs * cost.mac_ns
    if len(chosen) == width:
        return computed
    numbers = len(chosen) * reading.pixels
    if chosen[-1] - chosen[0] + 1 > len(chosen):
        return computed + cost.gather_ns + numbers * cost.gather_number_ns
    copied = 0 if cost.is_slice_view and reading.is_sliced_free else numbers
    return computed + cost.slice_ns + copied * cost.slice_number_ns
