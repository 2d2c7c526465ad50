"""Removes groups of channels from a copy of a model."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from nncfx.graph.channel_entries import entries_of
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork, unwrap
from nncfx.thinning.forward.arguments import Arguments
from nncfx.thinning.forward.fx_graph import ForwardGraph, forward_graph
from nncfx.thinning.forward.graph_form import exchange
from nncfx.thinning.selection import Selection
from nncfx.thinning.surgery import (
    Sizes,
    copy_without,
    cut_in_place,
    narrow_widths,
    resize,
    shapes_without,
)

_NOTHING: Final[Mapping[str, torch.Tensor]] = MappingProxyType({})
_NO_GRAPHS: Final[Mapping[str, ForwardGraph]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, eq=False)
class Removal:
    """A smaller copy of a model.

    Attributes:
        model: the copy; not yet checked to run.
        sizes: module name to the attributes that changed, with their new values.
        entries: (parameter or buffer, axis) to the indices removed along that axis, ascending.
        dead: number of a call that averages over channels to the axis and the removed entries.
        forms: modules that became graphs, with the arguments of their forwards.
    """

    model: nn.Module
    sizes: dict[str, Sizes]
    entries: Mapping[tuple[str, int], npt.NDArray[np.int64]]
    dead: Mapping[int, tuple[int, npt.NDArray[np.int64]]]
    forms: Mapping[str, Arguments]


def removed(
    model: nn.Module,
    channels: Channels,
    selection: Selection,
    baked: Mapping[str, torch.Tensor] = _NOTHING,
    graphs: Mapping[str, ForwardGraph] = _NO_GRAPHS,
) -> Removal:
    """Return a copy of `model` without the groups of `selection`; `model` is not changed.

    Args:
        model: any module.
        channels: its groups.
        selection: the groups to remove.
        baked: tensors that replace those of `model` in the copy, by name.
        graphs: forwards of modules in `channels.forms` that are known already.
    """
    entries = entries_of(channels, selection.groups)
    smaller, sizes = copy_without(model, entries, baked)
    falls = _widths(channels, selection)
    forms: dict[str, Arguments] = {}
    for name, arguments in channels.forms.items():
        form = graphs.get(name) or forward_graph(model.get_submodule(name), arguments)
        values = {
            key: value - falls.pop((name, key))
            for key, value in form.literals.items()
            if falls.get((name, key))
        }
        if values:
            smaller = exchange(smaller, name, form, values)
            sizes[name] = {**sizes.get(name, {}), **values}
            forms[name] = arguments
    narrow_widths(smaller, falls, sizes)
    dead = _dead(channels, selection)
    return Removal(model=smaller, sizes=sizes, entries=entries, dead=dead, forms=forms)


def shapes_removed(model: nn.Module, channels: Channels, selection: Selection) -> Removal:
    """Return the result of `removed` with zeros, to run by shapes; modules keep classes."""
    entries = entries_of(channels, selection.groups)
    smaller, sizes = shapes_without(model, entries)
    narrow_widths(smaller, _widths(channels, selection), sizes)
    dead = _dead(channels, selection)
    return Removal(model=smaller, sizes=sizes, entries=entries, dead=dead, forms={})


def removed_in_place(
    model: nn.Module, channels: Channels, selection: Selection, baked: Mapping[str, torch.Tensor]
) -> Removal:
    """Remove the groups of `selection` from `model` itself, tensor by tensor, and unwrap it.

    Modules keep their classes.

    Args:
        model: changed; a wrapped one loses its hooks.
        channels: its groups.
        selection: the groups to remove.
        baked: tensors that replace its own, by name.
    """
    entries = entries_of(channels, selection.groups)
    touched = cut_in_place(model, entries, baked)
    if isinstance(model, NNCFNetwork):
        unwrap(model)
    sizes = resize(model, touched)
    narrow_widths(model, _widths(channels, selection), sizes)
    dead = _dead(channels, selection)
    return Removal(model=model, sizes=sizes, entries=entries, dead=dead, forms={})


def _dead(
    channels: Channels, selection: Selection
) -> dict[int, tuple[int, npt.NDArray[np.int64]]]:
    """Return the channels that each call that averages over channels must ignore."""
    found: dict[int, tuple[int, npt.NDArray[np.int64]]] = {}
    for name, groups in selection.groups.items():
        for average in channels.find(name).averages:
            known = found.get(average.call, (average.axis, np.empty(0, dtype=np.int64)))[1]
            gone = np.concatenate([known, average.indices[groups].ravel()])
            found[average.call] = (average.axis, np.sort(gone))
    return found


def _widths(channels: Channels, selection: Selection) -> dict[tuple[str, str], int]:
    """Return how much each integer of a module decreases."""
    falls: dict[tuple[str, str], int] = defaultdict(int)
    for name, groups in selection.groups.items():
        for width in channels.find(name).widths:
            falls[width.module, width.attribute] += int(width.counts[groups].sum())
    return falls
