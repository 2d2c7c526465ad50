"""Masks without constraints: each consumer or producer of channels chooses its own.

`group_masks` masks a channel in all layers that carry it. Here each consumer of a tensor ranks its
own columns (side "input"), or each producer its own rows (side "output");
`nncfx.export.reorder_channels` then makes the model small.

Source: A. Wan et al., "UPSCALE: Unconstrained Channel Pruning", ICML 2023, section 3.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, CompressionError
from nncfx.graph import NNCFGraph
from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.schemes.masks.alignment import resolve_alignment
from nncfx.schemes.masks.criteria import Criterion, resolve_criterion
from nncfx.schemes.masks.exact_masks import MaskScope, named
from nncfx.schemes.masks.kept_groups import keep_groups
from nncfx.schemes.wide_floats import wide
from nncfx.targets import Alignment

Side: TypeAlias = Literal["input", "output"]
"""Whether consumers choose their columns ("input"), or producers their rows ("output")."""

_Places: TypeAlias = dict[str, tuple[int, list[Tensor]]]
"""Parameter to its axis, and the entries along it of every unit that is kept or removed."""


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking:
    """How channels are compared.

    Attributes:
        side: "input" or "output".
        criterion: A name of `CRITERIA`, or a function from `u x m` weights to `u` scores.
        scope: One ranking over all layers ("global"), or one for each ("local").
        normalize: Whether a layer's scores are divided by their mean.
        align: The allowed widths, or an integer of at least 1 that widths are multiples of.
    """

    side: Side = "input"
    criterion: Criterion = "l1norm"
    scope: MaskScope = "local"
    normalize: bool = True
    align: int | Alignment = 1


def unconstrained_masks(
    channels: Channels,
    weights: Mapping[str, Tensor],
    level: float,
    ranking: Ranking = Ranking(),
    *,
    graph: NNCFGraph | None = None,
    scored: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return the masks of layers that each choose their own channels, at `level`.

    A unit is the part of a layer that belongs to one group of `channels`; if a set is a single
    group that could only be removed as a whole, each of its channels is a unit. As many units are
    kept as in `keep_groups`: of n, `n - floor(level * n)`, at least one per layer.

    On the input side only columns of consumers are masked: a masked column reads nothing, so the
    channel can be removed wherever no other consumer reads it. On the output side rows and biases
    of producers are masked, together with the scale and the shift of a norm that only reads the
    producer, so the output is zero; if all producers of a channel lose it, so do its consumers.

    Args:
        channels: The channel analysis; only prunable channels are masked. With `living_norms`,
            channels that norms average over are prunable too, and safe to mask on the input side.
        weights: Parameters by dotted name.
        level: Fraction of units to remove, in [0, 1).
        ranking: How channels are compared.
        graph: The traced model, to find the norm after each producer; needed for the output side.
        scored: Tensors to score instead of the weights, by the same names: weights times gradients
            with `criterion=lambda b: b.sum(1).abs()` give the Taylor importance.

    Returns:
        Masks by parameter name, True for entries to keep, broadcastable to the parameter.
        Parameters that lose nothing are absent.

    Raises:
        ArgumentError: `level` or `ranking` is out of range, or `graph` is missing on the output
            side.
        CompressionError: there is nothing to mask, or a score is NaN.
        GraphError: `weights` lacks a layer.

    >>> from nncfx.graph.channels import Channels, GroupSet, Member, Role
    >>> import numpy as np
    >>> rows = np.array([[0], [1]])
    >>> reads = [("a", 0, Role.PRODUCER), ("b", 1, Role.CONSUMER), ("c", 1, Role.CONSUMER)]
    >>> members = tuple(Member(parameter=p, axis=a, indices=rows, role=r) for p, a, r in reads)
    >>> one = Channels((GroupSet(name="a", size=2, members=members),))
    >>> b, c = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 1.0]])
    >>> masks = unconstrained_masks(one, {"a": torch.ones(2, 3), "b": b, "c": c}, 0.5)
    >>> masks["b"], masks["c"]
    (tensor([[False,  True]]), tensor([[ True, False]]))
    """
    if ranking.side not in ("input", "output"):
        raise ArgumentError(
            f"side is {ranking.side!r}; it says who chooses. Use 'input' (each consumer its "
            "columns) or 'output' (each producer its rows)."
        )
    if ranking.side == "output" and graph is None:
        raise ArgumentError(
            "side is 'output', but there is no graph; it says which norm follows a producer and "
            "must be masked with it. Pass graph=nncfx.tracing.trace(model, example_inputs)."
        )
    role = Role.CONSUMER if ranking.side == "input" else Role.PRODUCER
    places = _places(channels, weights, role)
    if not places:
        raise CompressionError(
            f"No layer has a {role.value} side that could be masked: no channels are prunable. "
            f"Fixed are {'; '.join(list(channels.fixed.values())[:3]) or 'none'}."
        )
    scores = [
        _scores(name, place, named(scored or weights, name), ranking)
        for name, place in places.items()
    ]
    align = resolve_alignment(ranking.align)
    alignments = [align.times(_multiple(channels, name, role)) for name in places]
    keep = keep_groups(scores, level, align=alignments, scope=ranking.scope)
    gone = {
        name: (
            axis,
            torch.cat([unit for unit, stays in zip(units, kept, strict=True) if not stays]),
        )
        for (name, (axis, units)), kept in zip(places.items(), keep, strict=True)
        if not bool(kept.all())
    }
    masks = {name: _mask(weights[name], axis, entries) for name, (axis, entries) in gone.items()}
    if graph is not None and ranking.side == "output":
        rows = {name: entries for name, (_, entries) in gone.items()}
        for name, mask in _carried_on(channels, weights, graph, rows).items():
            masks[name] = masks[name] & mask if name in masks else mask
    return masks


def kept_units(
    channels: Channels, weights: Mapping[str, Tensor], masks: Mapping[str, Tensor], side: Side
) -> dict[str, tuple[int, int]]:
    """Return, for each layer that chooses, its number of units and how many `masks` keep.

    Args:
        channels: The channel analysis.
        weights: Parameters by dotted name; only their shapes are read.
        masks: By parameter name, broadcastable to it, non-zero for entries to keep.
        side: "input" or "output".
    """
    role = Role.CONSUMER if side == "input" else Role.PRODUCER
    counts = {}
    for name, (axis, units) in _places(channels, weights, role).items():
        left = len(units)
        if name in masks:
            mask = masks[name].movedim(axis, 0).flatten(1).ne(0).any(dim=1).cpu()
            left = sum(bool(mask.expand(weights[name].shape[axis])[unit].any()) for unit in units)
        counts[name] = (len(units), left)
    return counts


def _places(channels: Channels, weights: Mapping[str, Tensor], role: Role) -> _Places:
    """Return the layers that choose, in order of execution, and their units."""
    found: _Places = {}
    for group_set in channels.prunable:
        for member in group_set.by_role(role):
            if not member.is_buffer and named(weights, member.parameter).dim() > 1:
                _, units = found.setdefault(member.parameter, (member.axis, []))
                units.extend(_units(member))
    return found


def _multiple(channels: Channels, name: str, role: Role) -> int:
    """Return the multiple that the operations reading a layer's channels require."""
    return math.lcm(
        *(
            one.multiple
            for one in channels.prunable
            if one.size > 1 and any(member.parameter == name for member in one.by_role(role))
        )
    )


def _units(member: Member) -> list[Tensor]:
    indices = torch.from_numpy(member.indices.copy())
    return list((indices if len(indices) > 1 else indices.T).unbind())


def _scores(
    name: str, place: tuple[int, list[Tensor]], tensor: Tensor, ranking: Ranking
) -> Tensor:
    """Return one score per unit; units of equal width are scored together."""
    axis, units = place
    rows = wide(tensor.detach()).movedim(axis, 0).flatten(1)
    score = resolve_criterion(ranking.criterion)
    scores = rows.new_empty(len(units))
    widths = torch.tensor([len(unit) for unit in units], device="cpu")
    for width in sorted(set(widths.tolist())):
        chosen = torch.nonzero(widths == width).flatten()
        entries = torch.stack([units[index] for index in chosen.tolist()]).to(rows.device)
        scores[chosen.to(rows.device)] = score(rows[entries].flatten(1))
    if torch.isnan(scores).any():
        raise CompressionError(
            f"'{name}' gives NaN scores, which have no rank. Train the model to finite weights "
            "first."
        )
    average = scores.mean()
    return scores / average if ranking.normalize and average > 0 else scores


def _mask(parameter: Tensor, axis: int, gone: Tensor) -> Tensor:
    kept = torch.ones(parameter.shape[axis], dtype=torch.bool, device=parameter.device)
    kept[gone.to(parameter.device)] = False
    return kept.view([-1 if other == axis else 1 for other in range(parameter.dim())])


def _carried_on(
    channels: Channels, weights: Mapping[str, Tensor], graph: NNCFGraph, rows: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the masks of what masked rows make zero: biases, norms, unused columns."""
    masks = {}
    for name, gone in rows.items():
        module = name.rpartition(".")[0]
        names = [*_norm_parameters(graph, name), f"{module}.bias" if module else "bias"]
        members = [m for one in channels.prunable for m in one.members]
        carriers = {m.parameter for m in members if not m.is_buffer}
        for vector in names:
            if vector in carriers and weights[vector].dim() == 1:
                masks[vector] = _mask(weights[vector], 0, gone)
    columns: dict[str, tuple[int, list[Tensor]]] = {}
    for group_set in channels.prunable:
        silent = _silent(group_set, weights, rows)
        for member in group_set.by_role(Role.CONSUMER):
            entries = torch.from_numpy(member.indices.copy())[silent].flatten()
            if len(entries):
                columns.setdefault(member.parameter, (member.axis, []))[1].append(entries)
    for name, (axis, parts) in columns.items():
        masks[name] = _mask(weights[name], axis, torch.cat(parts))
    return masks


def _silent(
    group_set: GroupSet, weights: Mapping[str, Tensor], rows: Mapping[str, Tensor]
) -> Tensor:
    """Return the groups that every producer has lost."""
    silent = torch.ones(group_set.size, dtype=torch.bool, device="cpu")
    for member in group_set.by_role(Role.PRODUCER):
        if weights[member.parameter].dim() > 1:
            gone = rows.get(member.parameter, torch.empty(0, dtype=torch.int64, device="cpu"))
            silent &= torch.isin(torch.from_numpy(member.indices.copy()), gone).all(dim=1)
    return silent


def _norm_parameters(graph: NNCFGraph, weight: str) -> list[str]:
    """Return the scale and shift of norms that only read an operation of `weight`."""
    found = []
    for operation in graph.operations:
        if weight in operation.parameters.values():
            edges = graph.outgoing(operation.address)
            readers = [graph.find(edge.target) for edge in edges if edge.target in graph.addresses]
            if len(edges) == 1 and readers and readers[0].function == "batch_norm":
                found += list(readers[0].parameters.values())
    return found
