"""Copies a model with reordered channels, and layers that compute only what is needed."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from nncfx.graph.channels import Channels
from nncfx.reorder.consumers import Consumer
from nncfx.reorder.cost import cheapest_readings, is_placing_cheaper
from nncfx.reorder.placement import place_after
from nncfx.reorder.producers import Producer
from nncfx.reorder.selection import SharedGathers, select_before
from nncfx.storage.models.module_walk import all_tensors
from nncfx.targets import SelectionCost
from nncfx.thinning.surgery import copy_without

Kind: TypeAlias = Literal["all", "slice", "gather", "shared"]
Places: TypeAlias = dict[tuple[str, int], npt.NDArray[np.int64]]
"""(parameter or buffer, axis) to the old entry at each position."""
_Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LayerRead:
    """What a layer reads of its input.

    Attributes:
        kind: "all" of it, a "slice" of adjacent channels, a "gather" of others, or "shared": the
            gather of another layer.
        width: Channels of the input.
        read: Channels that are read.
        needed: Channels whose weights are not zero.
        pixels: Numbers per channel.
    """

    kind: Kind
    width: int
    read: int
    needed: int
    pixels: int


@dataclass(frozen=True, kw_only=True)
class LayerWrite:
    """What a layer computes of its output; the rest is filled with zeros.

    Attributes:
        width: Channels of the output.
        computed: Channels that are computed.
    """

    width: int
    computed: int


Reads: TypeAlias = dict[str, LayerRead]
Writes: TypeAlias = dict[str, LayerWrite]


def new_places(channels: Channels, orders: Mapping[str, list[int]]) -> Places:
    """Return the entries at each position after the groups of some sets are reordered.

    Args:
        channels: of the model.
        orders: name of a group set to the group at each position.
    """
    moves: dict[tuple[str, int], list[tuple[_Positions, _Positions]]] = defaultdict(list)
    for name, order in orders.items():
        for member in channels.find(name).members:
            old = member.indices[order].reshape(-1)
            moves[member.parameter, member.axis].append((member.indices.reshape(-1), old))
    places = {}
    for key, pairs in moves.items():
        size = 1 + max(int(new.max()) for new, _ in pairs)
        places[key] = np.arange(size)
        for new, old in pairs:
            places[key][new] = old
    return places


def rewritten(
    model: nn.Module,
    places: Places,
    layers: tuple[Iterable[Consumer], Iterable[Producer]],
    cost: SelectionCost | None,
) -> tuple[nn.Module, Reads, Writes]:
    """Return a copy of `model` in a new order, what its layers read, and what they compute.

    Args:
        model: not changed.
        places: of the new order.
        layers: the consumers and the producers.
        cost: of the runtime; None: only needed channels are read and computed.
    """
    consumers, producers = layers
    reads: Reads = {}
    writes: Writes = {}
    selected: list[tuple[Consumer, _Positions]] = []
    placed: list[tuple[Producer, _Positions]] = []
    gathered: set[Hashable] = set()
    listed = list(consumers)
    lives = [_moved(one.live, places, (one.weight, one.weight_axis)) for one in listed]
    for one, live, positions in zip(listed, lives, _positions(listed, lives, cost), strict=True):
        kind = _kind(positions, len(live), gathered, (one.source, tuple(positions.tolist())))
        reads[one.weight.rpartition(".")[0]] = LayerRead(
            kind=kind,
            width=len(live),
            read=len(positions),
            needed=int(live.sum()),
            pixels=one.pixels,
        )
        if kind != "all":
            selected.append((one, positions))
    for maker in producers:
        live = _moved(maker.live, places, (maker.weight, maker.weight_axis))
        if cost is None or is_placing_cheaper(live, maker, cost):
            placed.append((maker, np.flatnonzero(live)))
            writes[maker.layer] = LayerWrite(width=len(live), computed=int(live.sum()))
    return _cut(_permuted(model, places), selected, placed), reads, writes


def _moved(
    live: npt.NDArray[np.bool_], places: Places, key: tuple[str, int]
) -> npt.NDArray[np.bool_]:
    order = places.get(key, np.arange(len(live)))
    return np.concatenate([live[order], live[len(order) :]])


def _permuted(model: nn.Module, places: Places) -> nn.Module:
    """Return a copy of `model` with reordered entries."""
    copied, _ = copy_without(model, {})
    tensors = all_tensors(copied)
    with torch.no_grad():
        for (name, axis), order in places.items():
            tensor = tensors[name]
            moved = tensor.index_select(axis, torch.from_numpy(order).to(tensor.device))
            tensor.narrow(axis, 0, len(order)).copy_(moved)
    return copied


def _cut(
    model: nn.Module,
    selected: list[tuple[Consumer, _Positions]],
    placed: list[tuple[Producer, _Positions]],
) -> nn.Module:
    """Return a copy of `model` with narrower layers, their selections and placements."""
    entries = {
        (one.weight, one.weight_axis): np.setdiff1d(np.arange(len(one.live)), positions)
        for one, positions in selected
    }
    for maker, positions in placed:
        dead = np.setdiff1d(np.arange(len(maker.live)), positions)
        entries[maker.weight, maker.weight_axis] = dead
        if maker.bias is not None:
            entries[maker.bias, 0] = dead
    small, _ = copy_without(model, entries)
    shared: dict[Hashable, SharedGathers] = defaultdict(SharedGathers)
    for one, positions in selected:
        columns = positions.tolist()
        for layer in one.layers:
            gathers = None if one.source is None else shared[one.source, tuple(columns)]
            select_before(small.get_submodule(layer), one.axis, columns, gathers)
    for maker, positions in placed:
        layer_ = small.get_submodule(maker.layer)
        place_after(layer_, maker.axis, positions.tolist(), len(maker.live))
    return small


def _positions(
    consumers: list[Consumer], lives: list[npt.NDArray[np.bool_]], cost: SelectionCost | None
) -> list[_Positions]:
    """Return the channels that each consumer reads; all if it cannot select."""
    found = [np.arange(len(live)) for live in lives]
    if cost is None:
        pairs = zip(consumers, lives, found, strict=True)
        return [np.flatnonzero(live) if one.layers else every for one, live, every in pairs]
    readers: dict[Hashable, list[int]] = defaultdict(list)
    for number, one in enumerate(consumers):
        if one.layers:
            readers[number if one.source is None else one.source].append(number)
    for numbers in readers.values():
        chosen = cheapest_readings(
            [lives[n] for n in numbers], [consumers[n] for n in numbers], cost
        )
        for number, positions in zip(numbers, chosen, strict=True):
            found[number] = positions
    return found


def _kind(positions: _Positions, width: int, gathered: set[Hashable], what: Hashable) -> Kind:
    if len(positions) == width:
        return "all"
    if positions[-1] - positions[0] + 1 == len(positions):
        return "slice"
    if what in gathered:
        return "shared"
    gathered.add(what)
    return "gather"
