"""What selecting channels costs in a runtime, and the cheapest way to read them.

A layer can read exactly its channels (a slice where they are neighbours, else a gather), or the
shortest run that holds them, or everything; what it reads too much meets columns of zeros. Where a
runtime computes channels in blocks, what is read fills blocks.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nncfx.targets import Alignment, SelectionCost


class LayerWork(Protocol):
    """What a layer does for one channel."""

    @property
    def pixels(self) -> int:
        """Numbers per channel in what it reads or makes."""

    @property
    def macs(self) -> float:
        """Multiply-accumulates per channel."""


class Reading(LayerWork, Protocol):
    """How a layer reads."""

    @property
    def is_sliced_free(self) -> bool:
        """Whether a slice of its input is contiguous in memory."""


def cheapest_readings(
    lives: Sequence[npt.NDArray[np.bool_]], readings: Sequence[Reading], cost: SelectionCost
) -> list[npt.NDArray[np.int64]]:
    """Return which channels of one tensor each layer reads that reads it.

    A layer reads those that live, the run around them, or all; at equal cost the fewer. All
    layers read all where that is cheaper in total.

    Args:
        lives: for each layer, for each channel whether it is needed; at least one is.
        readings: how each layer reads.
        cost: of the runtime.

    >>> from types import SimpleNamespace
    >>> from nncfx.targets import TARGETS
    >>> cost = TARGETS["torch"].copies
    >>> live = np.array([True, False, True, True, False, False])
    >>> small = SimpleNamespace(pixels=1, macs=10, is_sliced_free=True)
    >>> cheapest_readings([live], [small], cost)
    [array([0, 1, 2, 3, 4, 5])]
    >>> large = SimpleNamespace(pixels=3136, macs=1e6, is_sliced_free=True)
    >>> cheapest_readings([live], [large], cost)
    [array([0, 2, 3])]
    """
    pairs = list(zip(lives, readings, strict=True))
    chosen = [_cheapest(live, reading, cost) for live, reading in pairs]
    everything = [np.arange(len(live)) for live in lives]
    layout = max(len(live) * reading.pixels for live, reading in pairs) * cost.layout_number_ns
    selecting = layout + _total(chosen, pairs, cost)
    return chosen if selecting < _total(everything, pairs, cost) else everything


def is_placing_cheaper(live: npt.NDArray[np.bool_], work: LayerWork, cost: SelectionCost) -> bool:
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
    chosen: npt.NDArray[np.int64], width: int, reading: Reading, cost: SelectionCost
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
