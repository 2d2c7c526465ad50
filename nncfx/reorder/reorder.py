"""Shrinks a model whose layers each keep their own channels: `reorder_channels`."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from typing_extensions import override

from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, ExportError, ThinningError, shortened
from nncfx.network import NNCFNetwork, inputs_for, strip
from nncfx.reorder.consumers import consumers
from nncfx.reorder.kept_inputs import Keep, keep_inputs
from nncfx.reorder.producers import producers
from nncfx.reorder.rewriting import Kind, LayerRead, LayerWrite, new_places, rewritten
from nncfx.reorder.segments import segment_orders
from nncfx.targets import SelectionCost, Target, target_named
from nncfx.thinning import ThinResult, thin
from nncfx.thinning.verification import ConstantOutputs, verify
from nncfx.tracing import ExampleInputs, trace


@dataclass(frozen=True, kw_only=True, eq=False)
class ReorderResult:
    """A small model, what its layers read, and the proof.

    Attributes:
        model: A smaller copy, of the same class, in the same mode.
        reads: What each layer reads whose input channels are known to the analysis, by its name.
        writes: What each layer computes that outputs channels of zeros, by its name.
        orders: Name of a group set to the new order of its groups, if it changed.
        max_error: max |reordered - masked| / max |masked| over the outputs on the example inputs.
        thinned: The result of first removing the channels that no layer reads.
        note: Why nothing was saved, and what to do, if nothing was; what the costs could not
            decide, and why; otherwise empty.
    """

    model: nn.Module
    reads: Mapping[str, LayerRead]
    writes: Mapping[str, LayerWrite]
    orders: Mapping[str, tuple[int, ...]]
    max_error: float
    thinned: ThinResult
    note: str = ""

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
        """Return how many layers read this way."""
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
            f"Layers that compute a part of their output only: {len(self.writes)}.\n"
            f"Relative error against the masked model: {self.max_error:.1e}."
        ) + (f"\n{self.note}" if self.note else "")


def reorder_channels(
    model: nn.Module,
    example_inputs: ExampleInputs | None = None,
    *,
    keeps: Mapping[str, Keep] | None = None,
    target: str | Target | SelectionCost | None = "torch",
    reorder: bool = True,
    tolerance: float | None = None,
) -> ReorderResult:
    """Return a smaller copy of a masked model whose layers each read only what they need.

    Zero columns mark the channels that a layer does not need, as after `unconstrained_masks`.
    Channels that no layer needs are removed. The others are ordered so that as many layers as
    possible find theirs adjacent and read a slice; the remaining layers gather, or read channels
    that they do not need where that costs less. Layers that output channels of zeros, as after
    masks of the output side, compute only the others. Weights, and everything else that follows
    the channels, are adapted. The copy is compared with the original in evaluation mode.

    Args:
        model: any module; a wrapped one is stripped first. It is never changed.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs; a
            wrapped model has its own. Costs depend on their sizes: pass the batch size and the
            resolution of deployment.
        keeps: dotted name of a layer to the input channels that it keeps (one bool each, or the
            ids), in addition to the zero columns.
        target: the runtime whose costs decide ("torch", "onnxruntime", "openvino"), or your own
            costs. With None, and with "tensorrt", whose costs have not been measured (`note` says
            so), no layer reads channels that it does not need.
        reorder: False keeps the order, so nearly every layer gathers.
        tolerance: the largest relative error accepted; None for 1e-5 in float32, or 1e-12 in
            float64, which decides if rounding alone makes float32 differ by more.

    Raises:
        ArgumentError: `target` is unknown, `tolerance` is negative, `keeps` leaves a layer nothing
            or removes channels that it must keep, or `example_inputs` is invalid.
        GraphError: `keeps` names a layer that does not exist.
        TracingError: the model rejects the inputs, or a hook cannot be baked in.
        ThinningError: channels that are not read cannot be removed exactly.
        ExportError: the reordered copy fails or differs. Nothing is changed.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    >>> model[2].weight.data[:, ::2] = 0
    >>> result = reorder_channels(model, torch.ones(1, 3, dtype=torch.float64))
    >>> result.model[0].out_features, result.copied
    (2, 0)
    """
    runtime = target_named(target) if isinstance(target, (str, Target)) else None
    cost = runtime.copies if runtime else target if isinstance(target, SelectionCost) else None
    if tolerance is not None and not tolerance >= 0:
        raise ArgumentError(f"tolerance is {tolerance}; a relative error is at least 0.")
    example_inputs = inputs_for(model, example_inputs)
    masked = strip(model) if isinstance(model, NNCFNetwork) else model
    if keeps is not None:
        masked = keep_inputs(masked, example_inputs, keeps)
    align = 1 if cost is None else cost.alignment
    thinned = thin(masked, example_inputs, align=align, tolerance=tolerance)
    channels = analyze_channels(thinned.model, example_inputs, living_norms=True)
    graph = trace(thinned.model, example_inputs)
    reading = consumers(thinned.model, channels, graph)
    making = producers(thinned.model, channels, graph)
    orders: dict[str, list[int]] = {}
    if reorder:
        readers = [one.reader(channels) for one in reading]
        readers += [one.reader(channels) for one in making]
        orders = segment_orders(one for one in readers if one is not None)
    places = new_places(channels, orders)
    small, reads, writes = rewritten(thinned.model, places, (reading, making), cost)
    try:
        error = verify(masked, small, example_inputs, tolerance)
    except ConstantOutputs as same:  # thinning found that some layer is cut off
        error = same.error
    except ThinningError as fault:
        raise ExportError(
            f"{fault} Channels were put in a new order at {_listed(orders)}; somewhere the code "
            "depends on the order in a way that is not seen. The model is as it was; pass "
            "reorder=False to leave the order."
        ) from fault
    notes = (_unmeasured(runtime), _unsaved(thinned, small, reads, runtime))
    return ReorderResult(
        model=small,
        reads=reads,
        writes=writes,
        orders={name: tuple(order) for name, order in orders.items()},
        max_error=error,
        thinned=thinned,
        note=" ".join(filter(None, notes)),
    )


def _unsaved(
    thinned: ThinResult, small: nn.Module, reads: Mapping[str, LayerRead], target: Target | None
) -> str:
    """Return why the model did not become smaller, and what to do; empty if it did."""
    if sum(one.numel() for one in small.parameters()) < thinned.parameters[0]:
        return ""
    needless = sum(one.needed < one.read for one in reads.values())
    if not needless:
        return (
            "Nothing saved: no layer has zeros for whole channels of its input or output. Mask "
            "the model first (nncfx.schemes.unconstrained_masks), or pass keeps."
        )
    runtime = f"in {target.name}" if target else "at these costs"
    return (
        f"Nothing saved: {needless} of {len(reads)} layers need fewer channels than they read, "
        f"but {runtime} selecting them takes longer than computing with the others. Mask more, "
        "prune layers together instead (filter_pruning, then nncfx.thin), which copies nothing, "
        "or pass target=None for the fewest parameters, whatever that costs."
    )


def _unmeasured(target: Target | None) -> str:
    if target is None or target.copies:
        return ""
    reason = target.missing.get("copies", "nobody has measured it")
    return (
        f"What selecting channels costs in {target.name} is not known ({reason}): layers "
        "read what they need and no more, whatever that costs."
    )


def _listed(orders: Mapping[str, object]) -> str:
    return shortened([f"'{name}'" for name in orders])
