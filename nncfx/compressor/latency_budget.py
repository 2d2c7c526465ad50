"""Prune channels until the latency predicted by a table is within a budget."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn

from nncfx.config import PruningParams
from nncfx.controllers.masks.costs import register_costs
from nncfx.errors import ArgumentError, CompressionError
from nncfx.export import export_onnx
from nncfx.graph import NNCFGraph
from nncfx.graph.channels import Channels, GroupSet
from nncfx.network import NNCFNetwork, inputs_for, unwrap
from nncfx.runtimes import LatencyTable, Variant, measured_table, read_table
from nncfx.schemes import keep_groups
from nncfx.schemes.masks.alignment import alignments_of, resolve_alignment
from nncfx.schemes.masks.exact_masks import removed_groups
from nncfx.storage.formats.whole_file import read_text
from nncfx.targets import TARGETS, Alignment
from nncfx.thinning.removal import Removal, removed
from nncfx.thinning.selection import Selection
from nncfx.thinning.surgery import sized_on_the_way
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.record.tracer import trace_of_shapes

_STEPS: Final = 12
"""Halvings of the level: a resolution of one in 4096 groups."""


def measured_widths(
    model: nn.Module,
    example_inputs: ExampleInputs,
    channels: Channels,
    *,
    variants: int = 8,
    seed: int = 0,
) -> LatencyTable:
    """Return a table of the layers of `model` at several widths, timed here in ONNX Runtime.

    The first variant is the model itself; the others have random widths that suit ONNX Runtime.
    One thread is used.

    Args:
        model: not changed.
        example_inputs: the inputs of one timed call.
        channels: the channels whose widths vary, from `prunable_channels`.
        variants: how many models are exported and timed, at least 2; each takes a second or two.
        seed: of the random widths.

    Raises:
        ArgumentError: `variants` is below 2.
        RuntimeFailure: ONNX Runtime rejects the model.
        MissingExtraError: ONNX Runtime or the exporter is not installed.
    """
    if variants < 2:  # noqa: PLR2004 (a line needs two points)
        raise ArgumentError(
            f"variants is {variants}; times between widths are interpolated from several models. "
            "Ask for at least 2."
        )
    generator = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(prefix="nncfx-") as folder:
        made = []
        for number in range(variants):
            keep = [
                torch.arange(one.size, device="cpu")
                < _width(one, generator.random() if number else 1.0)
                for one in channels.prunable
            ]
            removal = _without(model, channels, keep)
            graph = _graph(removal, example_inputs)
            file = export_onnx(removal.model, Path(folder) / f"{number}.onnx", example_inputs)
            made.append(Variant(graph=graph, path=file, modules=file.modules))
        return measured_table(made, example_inputs)


def groups_within_latency(
    model: nn.Module,
    example_inputs: ExampleInputs,
    channels: Channels,
    scores: Sequence[Tensor],
    *,
    table: LatencyTable,
    limit_ms: float,
) -> list[Tensor]:
    """Return which channel groups to keep for a predicted latency of at most `limit_ms`.

    All sets share one ranking. As few groups are removed as the limit allows, to widths that suit
    the table's runtime. `group_masks` converts the result to masks.

    Args:
        model: dense or masked; not changed.
        example_inputs: the inputs that the table was measured on.
        channels: from `prunable_channels`.
        scores: as `group_scores` returns them.
        table: from `measured_widths`, or measured on the target machine and read with
            `read_table`.
        limit_ms: milliseconds per call.

    Raises:
        ArgumentError: `limit_ms` is not above 0.
        CompressionError: the limit is below the latency of the narrowest model.
        RuntimeFailure: the table lacks a kind of module.
    """
    if not limit_ms > 0:  # which NaN is not either
        raise ArgumentError(f"limit_ms is {limit_ms:g}; a call takes more than 0 milliseconds.")
    entries = [one.origin.indices.shape[1] for one in channels.prunable]
    known = TARGETS.get(table.machine.get("runtime", ""))
    alignment = (known.alignment if known else None) or Alignment(1)
    # the limit is on time, so use the widths that take the least time
    alignments = alignments_of(channels, replace(alignment, down=True))

    def kept(level: float) -> list[Tensor]:
        return keep_groups(scores, level, align=alignments, entries=entries)

    def predicted(level: float) -> float:
        removal = _without(model, channels, kept(level))
        return table.predict_ms(_graph(removal, example_inputs))

    low, high = 0.0, 1 - 2.0**-_STEPS
    if predicted(low) <= limit_ms:
        return kept(low)
    least = predicted(high)
    if least > limit_ms:
        raise CompressionError(
            f"The narrowest model is predicted to take {least:.3g} ms, above the limit of "
            f"{limit_ms:g} ms: the rest is in layers that may not lose channels. Raise limit_ms, "
            "or see the reasons in channels.fixed."
        )
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if predicted(middle) <= limit_ms else (middle, high)
    return kept(high)


@final
class PredictedCosts:
    """Latency of a model predicted from a table, and how much masks on it would save.

    Attributes:
        unit: What is counted.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: ExampleInputs,
        channels: Channels,
        table: LatencyTable,
    ) -> None:
        """Predict the latency of the dense model.

        Args:
            model: dense, without hooks; kept, and not changed.
            example_inputs: the inputs that the table was measured on.
            channels: those that may be removed, the others fixed.
            table: of the modules of this very model.

        Raises:
            RuntimeFailure: the table lacks a kind of module.
        """
        self.unit = "predicted latency"
        self._model, self._example_inputs = model, example_inputs
        self._channels, self._table = channels, table
        self._known: dict[tuple[int, ...], float] = {}
        self._dense_ms = self._predicted(
            [torch.ones(one.size, dtype=torch.bool, device="cpu") for one in channels.prunable]
        )

    def saved(self, masks: Mapping[str, Tensor]) -> float:
        """Return the fraction of the dense model's latency that removing masked groups saves.

        If all groups of a set are masked, thinning keeps one of them, which is counted. Each
        combination of widths is traced once.

        Args:
            masks: at least those of producers, by first dotted name; broadcastable to the weights.
        """
        return 1 - self._predicted([_kept(one, masks) for one in self._channels.prunable]) / (
            self._dense_ms
        )

    def _predicted(self, keep: list[Tensor]) -> float:
        key = tuple(int(mask.sum()) for mask in keep)
        if key not in self._known:
            removal = _without(self._model, self._channels, keep)
            self._known[key] = self._table.predict_ms(_graph(removal, self._example_inputs))
        return self._known[key]


@register_costs("latency")
def _costs(model: NNCFNetwork, channels: Channels, params: PruningParams) -> PredictedCosts:
    assert params.latency_table is not None  # noqa: S101 (a rule of the params)
    table = read_table(read_text(params.latency_table))
    # hooks are not needed for a prediction, and some cannot be copied
    plain = unwrap(copy_of(model))
    return PredictedCosts(plain, inputs_for(model, None), channels, table)


def _kept(group_set: GroupSet, masks: Mapping[str, Tensor]) -> Tensor:
    """Return which groups of a set its producers' mask keeps; at least one."""
    origin = group_set.origin
    mask = masks.get(origin.parameter)
    keep = torch.ones(group_set.size, dtype=torch.bool, device="cpu")
    if mask is not None and mask.shape[origin.axis] > 1:
        rows = mask.movedim(origin.axis, 0).flatten(1).ne(0).any(dim=1).cpu()
        keep = rows[torch.from_numpy(origin.indices[:, 0].copy())]
    if not keep.any():
        keep[0] = True
    return keep


def _width(group_set: GroupSet, share: float) -> int:
    """Return the number of groups at `share`, among the counts that suit ONNX Runtime."""
    entries = group_set.origin.indices.shape[1]
    suits = resolve_alignment("onnxruntime").allows
    counts = [n for n in range(1, group_set.size) if suits(n * entries)] + [group_set.size]
    return counts[min(int(share * len(counts)), len(counts) - 1)]


def _without(model: nn.Module, channels: Channels, keep: Sequence[Tensor]) -> Removal:
    selection = Selection(groups=removed_groups(channels, keep), kept={})
    return removed(model, channels, selection)


def _graph(removal: Removal, example_inputs: ExampleInputs) -> NNCFGraph:
    with sized_on_the_way(removal.model, removal.sizes):
        return trace_of_shapes(removal.model, example_inputs).graph
