"""Make a model small whose layers each keep their own channels: `reorder_channels`."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError, ExportError, ThinningError
from nncfx.export.channel_selection import select_before
from nncfx.export.consumers import Consumer, consumers
from nncfx.export.kept_inputs import Keep, keep_inputs
from nncfx.export.segments import segment_orders
from nncfx.export.selection_cost import (
    Reading,
    SelectionCost,
    cheapest_positions,
    selection_cost_of,
)
from nncfx.graph.channels import Channels
from nncfx.thinning import ThinResult, thin
from nncfx.thinning.surgery import copy_without, named_tensors
from nncfx.thinning.verification import verify
from nncfx.tracing import ExampleInputs, NNCFNetwork, analyze_channels, strip, trace

__all__ = ["LayerRead", "ReorderResult", "reorder_channels"]

Kind: TypeAlias = Literal["all", "slice", "gather"]
_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class LayerRead:
    """What a layer reads of its input.

    Attributes:
        kind: "all" of it, a "slice" of neighbours, or a "gather".
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


@dataclass(frozen=True, kw_only=True, eq=False)
class ReorderResult:
    """A small model, what its layers read, and the proof.

    Attributes:
        model: A smaller copy, of the same class, in the same mode.
        reads: What each layer reads whose channels the analysis knows, by its name.
        orders: Name of a group set to the new order of its groups, where it changed.
        max_error: max |reordered - masked| / max |masked| over the outputs on the example inputs.
        thinned: What removing the channels that no layer reads has given before.
    """

    model: nn.Module
    reads: Mapping[str, LayerRead]
    orders: Mapping[str, tuple[int, ...]]
    max_error: float
    thinned: ThinResult

    @property
    def copied(self) -> int:
        """Channels that gathers copy."""
        return sum(one.read for one in self.reads.values() if one.kind == "gather")

    @property
    def copied_numbers(self) -> int:
        """Numbers that gathers copy: channels times their pixels."""
        gathers = (one for one in self.reads.values() if one.kind == "gather")
        return sum(one.read * one.pixels for one in gathers)

    def count(self, kind: Kind) -> int:
        """Return how many layers read in this way."""
        return sum(one.kind == kind for one in self.reads.values())

    @override
    def __str__(self) -> str:
        """Return a summary of a few lines."""
        before, after = self.thinned.parameters[0], sum(p.numel() for p in self.model.parameters())
        share = 1 - after / before if before else 0.0
        return (
            f"Parameters: {before:,} -> {after:,} (-{share:.1%}).\n"
            f"Layers: {self.count('slice')} read a slice, {self.count('gather')} gather "
            f"({self.copied:,} channels copied), {self.count('all')} read all.\n"
            f"Relative error against the masked model: {self.max_error:.1e}."
        )


def reorder_channels(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    keeps: Mapping[str, Keep] | None = None,
    target: str | SelectionCost | None = "torch",
    reorder: bool = True,
    tolerance: float | None = None,
) -> ReorderResult:
    """Return a smaller copy of a masked model whose layers each read only what they need.

    Columns that are zero say which channels a layer does not need, as `unconstrained_masks`
    leaves them. Channels that no layer needs go. The others are put in an order in which as many
    layers as possible find theirs side by side and read a slice; the remaining ones gather, or
    read channels that they do not need where that costs less. Weights follow, with everything
    that goes with the channels. The copy is compared with the original in evaluation mode.

    Args:
        model: any module; a wrapped one is stripped first. It is never changed.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
            Their sizes count for the costs: pass the batch and the resolution that will run.
        keeps: dotted name of a layer to the input channels that it keeps (one bool each, or the
            ids), where the columns do not say so already.
        target: the runtime whose costs decide ("torch", "onnxruntime"), or costs of your own;
            None: no layer reads what it does not need.
        reorder: False leaves the order as it is, so that nearly every layer gathers.
        tolerance: the largest relative error accepted; None for 1e-5 in float32, 1e-12 in
            float64.

    Raises:
        ArgumentError: `target` is not known, `tolerance` is negative, `keeps` leaves a layer
            nothing or takes what it must keep, or `example_inputs` is of no accepted form.
        GraphError: `keeps` names a layer that is not there.
        TracingError: the model refuses the inputs, or a hook cannot be baked in.
        ThinningError: channels that nobody reads cannot be removed exactly.
        ExportError: the reordered copy fails or differs. Nothing is changed.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    >>> model[2].weight.data[:, ::2] = 0
    >>> result = reorder_channels(model, torch.ones(1, 3, dtype=torch.float64))
    >>> result.model[0].out_features, result.copied
    (2, 0)
    """
    cost = None if target is None else selection_cost_of(target)
    if tolerance is not None and not tolerance >= 0:
        raise ArgumentError(f"tolerance is {tolerance}; a relative error is at least 0.")
    masked = strip(model) if isinstance(model, NNCFNetwork) else model
    if keeps is not None:
        masked = keep_inputs(masked, example_inputs, keeps)
    thinned = thin(masked, example_inputs, tolerance=tolerance)
    channels = analyze_channels(thinned.model, example_inputs, living_norms=True)
    graph = trace(thinned.model, example_inputs)
    found = consumers(thinned.model, channels, graph)
    orders: dict[str, list[int]] = {}
    if reorder:
        readers = (one.reader(channels) for one in found)
        orders = segment_orders(one for one in readers if one is not None)
    places = _places(channels, orders)
    reads, small = _narrowed(_permuted(thinned.model, places), found, places, cost)
    try:
        error = verify(masked, small, example_inputs, tolerance)
    except ThinningError as fault:
        raise ExportError(
            f"{fault} Channels were put in a new order at {_listed(orders)}; somewhere the code "
            "depends on the order in a way that is not seen. The model is as it was; pass "
            "reorder=False to leave the order.",
        ) from fault
    return ReorderResult(
        model=small,
        reads=reads,
        orders={name: tuple(order) for name, order in orders.items()},
        max_error=error,
        thinned=thinned,
    )


_Places: TypeAlias = dict[tuple[str, int], npt.NDArray[np.int64]]
"""(parameter or buffer, axis) to the old entry that stands at each place."""


def _places(channels: Channels, orders: Mapping[str, list[int]]) -> _Places:
    moves: dict[tuple[str, int], list[tuple[npt.NDArray[np.int64], ...]]] = defaultdict(list)
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


def _permuted(model: nn.Module, places: _Places) -> nn.Module:
    """Return a copy of `model` with entries in other places."""
    copied, _ = copy_without(model, {})
    tensors = named_tensors(copied)
    with torch.no_grad():
        for (name, axis), order in places.items():
            tensor = tensors[name]
            moved = tensor.index_select(axis, torch.from_numpy(order).to(tensor.device))
            tensor.narrow(axis, 0, len(order)).copy_(moved)
    return copied


def _narrowed(
    model: nn.Module,
    found: list[Consumer],
    places: _Places,
    cost: SelectionCost | None,
) -> tuple[dict[str, LayerRead], nn.Module]:
    """Return what each layer reads, and a copy of `model` whose layers read just that."""
    reads: dict[str, LayerRead] = {}
    chosen: list[tuple[Consumer, npt.NDArray[np.int64]]] = []
    for one in found:
        live = one.live.copy()
        order = places.get((one.weight, one.weight_axis), np.arange(len(live)))
        live[: len(order)] = live[order]
        positions = _positions(one, live, cost)
        chosen.append((one, positions))
        name = one.weight.rpartition(".")[0]
        reads[name] = LayerRead(
            kind=_kind(positions, len(live)),
            width=len(live),
            read=len(positions),
            needed=int(live.sum()),
            pixels=one.pixels,
        )
    selected = [(one, positions) for one, positions in chosen if len(positions) < len(one.live)]
    small, _ = copy_without(
        model,
        {
            (one.weight, one.weight_axis): np.setdiff1d(np.arange(len(one.live)), positions)
            for one, positions in selected
        },
    )
    for one, positions in selected:
        for layer in one.layers:
            select_before(small.get_submodule(layer), one.axis, positions.tolist())
    return reads, small


def _positions(
    one: Consumer,
    live: npt.NDArray[np.bool_],
    cost: SelectionCost | None,
) -> npt.NDArray[np.int64]:
    if not one.layers:
        return np.arange(len(live))
    if cost is None:
        return np.flatnonzero(live)
    reading = Reading(pixels=one.pixels, macs=one.macs, is_sliced_free=one.is_sliced_free)
    return cheapest_positions(live, reading, cost)


def _kind(positions: npt.NDArray[np.int64], width: int) -> Kind:
    if len(positions) == width:
        return "all"
    return "slice" if positions[-1] - positions[0] + 1 == len(positions) else "gather"


def _listed(orders: Mapping[str, object]) -> str:
    names = [f"'{name}'" for name in orders]
    shown, more = names[:_SHOWN], len(names) - _SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
