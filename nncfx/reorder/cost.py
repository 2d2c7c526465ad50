"""What selecting channels costs in a runtime, and the cheapest way to read them.

A layer can read exactly its channels (a slice where they are neighbours, else a gather), or the
shortest run that holds them, or everything; what it reads too much meets columns of zeros. Where a
runtime computes channels in blocks, what is read fills blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.schemes.masks.alignment import Alignment

__all__ = [
    "COSTS",
    "UNMEASURED",
    "Reading",
    "SelectionCost",
    "Work",
    "cheapest_readings",
    "is_placing_cheaper",
    "selection_cost_of",
]

_ANY_WIDTH: Final = Alignment(1)


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
        read_number_ns: Per number that a convolution or a linear layer reads, beside that.
        layout_number_ns: Per number of a tensor of which anything is selected: a runtime that
            holds channels in blocks puts it back in rows first. Once, whoever selects.
        alignment: The widths that are computed without waste; others cost as the next of them.
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


COSTS: Final[Mapping[str, SelectionCost]] = MappingProxyType(
    {
        "torch": SelectionCost(
            slice_ns=3000,
            slice_number_ns=0.3,
            is_slice_view=True,
            gather_ns=3000,
            gather_number_ns=0.26,
            mac_ns=0.02,
            read_number_ns=0.5,
        ),
        "onnxruntime": SelectionCost(
            slice_ns=2000,
            slice_number_ns=0.19,
            is_slice_view=False,
            gather_ns=2000,
            gather_number_ns=0.19,
            mac_ns=0.008,
            layout_number_ns=0.1,
            alignment=Alignment(16),
        ),
        "openvino": SelectionCost(
            slice_ns=1250,
            slice_number_ns=0.28,
            is_slice_view=False,
            gather_ns=3300,
            gather_number_ns=0.36,
            mac_ns=0.0045,
            alignment=Alignment(16),
        ),
    },
)
"""Costs by runtime.

Measured by `benchmarks/unconstrained_costs.py`; for ONNX Runtime the costs per number come from a
profile of DenseNet-121, whose tensors do not stay in the cache as those of the script do.
"""

UNMEASURED: Final[Mapping[str, str]] = MappingProxyType(
    {"tensorrt": "no GPU was at hand when costs were measured"},
)
"""Runtimes without costs, and why."""


def selection_cost_of(target: str | SelectionCost) -> SelectionCost | None:
    """Return the costs of a runtime, or `target` itself if it is some; None for `UNMEASURED` ones.

    Raises:
        ArgumentError: there is no runtime of that name.
    """
    if isinstance(target, SelectionCost):
        return target
    if target not in COSTS and target not in UNMEASURED:
        known = [*sorted(COSTS), *UNMEASURED]
        raise ArgumentError(
            f"target is {target!r}; what selecting channels costs there is not known. Use one of "
            f"{', '.join(known)}, or pass a SelectionCost.{did_you_mean(target, known)}",
        )
    return COSTS.get(target)


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


def cheapest_readings(
    lives: Sequence[npt.NDArray[np.bool_]],
    readings: Sequence[Reading],
    cost: SelectionCost,
) -> list[npt.NDArray[np.int64]]:
    """Return which channels of one tensor each layer reads that reads it.

    A layer reads those that live, the run around them, or all; at equal cost the fewer. All
    layers read all where that is cheaper in total.

    Args:
        lives: for each layer, for each channel whether it is needed; at least one is.
        readings: how each layer reads.
        cost: of the runtime.

    >>> from types import SimpleNamespace
    >>> live = np.array([True, False, True, True, False, False])
    >>> small = SimpleNamespace(pixels=1, macs=10, is_sliced_free=True)
    >>> cheapest_readings([live], [small], COSTS["torch"])
    [array([0, 1, 2, 3, 4, 5])]
    >>> large = SimpleNamespace(pixels=3136, macs=1e6, is_sliced_free=True)
    >>> cheapest_readings([live], [large], COSTS["torch"])
    [array([0, 2, 3])]
    """
    pairs = list(zip(lives, readings, strict=True))
    chosen = [_cheapest(live, reading, cost) for live, reading in pairs]
    everything = [np.arange(len(live)) for live in lives]
    layout = max(len(live) * reading.pixels for live, reading in pairs) * cost.layout_number_ns
    selecting = layout + _total(chosen, pairs, cost)
    return chosen if selecting < _total(everything, pairs, cost) else everything


def is_placing_cheaper(live: npt.NDArray[np.bool_], work: Work, cost: SelectionCost) -> bool:
    """Return whether to compute only the channels that live, and put them among zeros.

    Args:
        live: for each channel that a layer makes whether it can be other than zero.
        work: of the layer for one channel.
        cost: of the runtime. Placing costs what gathering all channels does.
    """
    computed = _aligned(int(live.sum()), cost.alignment)
    saved = (_aligned(len(live), cost.alignment) - computed) * work.macs * cost.mac_ns
    each = cost.gather_number_ns + cost.layout_number_ns
    return saved > cost.gather_ns + len(live) * work.pixels * each


def _total(
    chosen: Sequence[npt.NDArray[np.int64]],
    pairs: Sequence[tuple[npt.NDArray[np.bool_], Reading]],
    cost: SelectionCost,
) -> float:
    each = zip(chosen, pairs, strict=True)
    return sum(_cost(one, len(live), reading, cost) for one, (live, reading) in each)


def _cheapest(
    live: npt.NDArray[np.bool_], reading: Reading, cost: SelectionCost
) -> npt.NDArray[np.int64]:
    exact = np.flatnonzero(live)
    run = np.arange(exact[0], exact[-1] + 1)
    choices = [_filled(one, len(live), cost.alignment) for one in (exact, run)]
    choices.append(np.arange(len(live)))
    return min(choices, key=lambda chosen: _cost(chosen, len(live), reading, cost))


def _filled(
    chosen: npt.NDArray[np.int64], width: int, alignment: Alignment
) -> npt.NDArray[np.int64]:
    """Return `chosen` with as many of its neighbours as make an aligned width, or all."""
    count = _aligned(len(chosen), alignment)
    if count >= width:
        return np.arange(width)
    others = np.setdiff1d(np.arange(width), chosen)
    distance = np.abs(others[:, None] - chosen).min(axis=1)
    nearest = others[np.argsort(distance, kind="stable")][: count - len(chosen)]
    return np.sort(np.concatenate([chosen, nearest]))


def _aligned(count: int, alignment: Alignment) -> int:
    while not alignment.allows(count):
        count += 1
    return count


def _cost(
    chosen: npt.NDArray[np.int64],
    width: int,
    reading: Reading,
    cost: SelectionCost,
) -> float:
    each = reading.macs * cost.mac_ns + reading.pixels * cost.read_number_ns
    computed = _aligned(len(chosen), cost.alignment) * each
    if len(chosen) == width:
        return computed
    numbers = len(chosen) * reading.pixels
    if chosen[-1] - chosen[0] + 1 > len(chosen):
        return computed + cost.gather_ns + numbers * cost.gather_number_ns
    copied = 0 if cost.is_slice_view and reading.is_sliced_free else numbers
    return computed + cost.slice_ns + copied * cost.slice_number_ns
