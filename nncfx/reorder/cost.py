"""The cost of selecting channels in a runtime, and the cheapest way to read them.

A layer can read exactly its channels (as a slice if they are adjacent, else by a gather), or the
shortest run that contains them, or everything; surplus channels meet columns of zeros. If a
runtime computes channels in blocks, reads are extended to fill blocks.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from nncfx.targets import Alignment, SelectionCost


class LayerWork(Protocol):
    """The work of a layer per channel."""

    @property
    def pixels(self) -> int:
        """Numbers per channel in its input or output."""

    @property
    def macs(self) -> float:
        """Multiply-accumulates per channel."""


class Reading(LayerWork, Protocol):
    """The work of a layer, and how it reads its input."""

    @property
    def is_sliced_free(self) -> bool:
        """Whether a slice of its input is contiguous in memory."""


def cheapest_readings(
    lives: Sequence[npt.NDArray[np.bool_]], readings: Sequence[Reading], cost: SelectionCost
) -> list[npt.NDArray[np.int64]]:
    """Return the channels of one tensor that each of its readers reads.

    A layer reads the live channels, the run around them, or all; at equal cost the fewest. All
    layers read all channels if that is cheaper in total.

    Args:
        lives: for each layer, for each channel whether it is needed; at least one is.
        readings: the work of each layer.
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
    """Return whether to compute only the live channels, and insert zeros for the others.

    Args:
        live: for each output channel of a layer, whether it can be non-zero.
        work: of the layer per channel.
        cost: of the runtime. Placing costs as much as gathering all channels.
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
    """Return `chosen` with enough neighbours added for an aligned width, or all channels."""
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
