"""Zeros the columns of input channels that a caller excludes: `keep_inputs`."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, GraphError, did_you_mean
from nncfx.graph.channels import Channels, Role
from nncfx.reorder.keeps import checked_channels
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.model_copy import copy_of

Keep: TypeAlias = Tensor | npt.NDArray[np.bool_] | Iterable[int]
"""A bool per input channel of a layer, or the ids of those that it keeps."""


def keep_inputs(
    model: nn.Module, example_inputs: ExampleInputs, keeps: Mapping[str, Keep]
) -> nn.Module:
    """Return a copy of `model` whose layers have zero columns for the channels they do not keep.

    Args:
        model: a plain module; never changed.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        keeps: dotted name of a layer to the input channels that it keeps; other layers keep
            theirs.

    Raises:
        GraphError: there is no such layer, or no layer creates the channels that it reads.
        ArgumentError: a layer would keep nothing, or channels that it does not have, or lose one
            that cannot be removed.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1, bias=False))
    >>> kept = keep_inputs(model, torch.ones(1, 2), {"1": [0, 2]})
    >>> (kept[1].weight == 0).tolist()
    [[False, True, False]]
    """
    places = _places(analyze_channels(model, example_inputs, living_norms=True))
    copied = copy_of(model)
    for layer, keep in keeps.items():
        if layer not in places:
            raise GraphError(
                f"No layer '{layer}' reads channels that another layer creates."
                f"{_known(layer, places)}"
            )
        name, axis, removable = places[layer]
        weight = copied.get_parameter(name)
        gone = _gone(layer, keep, weight.shape[axis])
        fixed = np.setdiff1d(gone, removable)
        if len(fixed):
            raise ArgumentError(
                f"keeps['{layer}'] leaves out channel {fixed[0]}, which cannot go: it is an input "
                "of the model or a constant, which no layer creates. Let the layer keep it."
            )
        with torch.no_grad():
            weight.index_fill_(axis, torch.from_numpy(gone).to(weight.device), 0)
    return copied


def _known(layer: str, places: Iterable[str]) -> str:
    listed = list(places)
    return did_you_mean(layer, listed) or f" Those that do are {', '.join(listed) or 'none'}."


def _places(channels: Channels) -> dict[str, tuple[str, int, npt.NDArray[np.int64]]]:
    """Return, by layer, its weight, the axis of the columns, and the columns that can be zero."""
    places: dict[str, tuple[str, int, npt.NDArray[np.int64]]] = {}
    for group_set in channels:
        for member in group_set.by_role(Role.CONSUMER):
            layer = member.parameter.rpartition(".")[0]
            known = places[layer][2] if layer in places else np.empty(0, dtype=np.int64)
            columns = np.union1d(known, member.indices.reshape(-1))
            places[layer] = (member.parameter, member.axis, columns)
    return places


def _gone(layer: str, keep: Keep, width: int) -> npt.NDArray[np.int64]:
    """Return the columns that are not kept, ascending."""
    place = f"keeps['{layer}']"
    if isinstance(keep, Tensor | np.ndarray) and str(keep.dtype).rpartition(".")[2] == "bool":
        kept = np.asarray(keep.tolist(), dtype=np.bool_)
        if kept.shape != (width,):
            raise ArgumentError(
                f"{place} has the shape {tuple(kept.shape)}, but the layer has {width} input "
                f"channels. Give one bool per channel: shape ({width},)."
            )
    else:
        ids = checked_channels(keep.tolist() if isinstance(keep, Tensor) else keep, place)
        if max(ids, default=0) >= width:
            raise ArgumentError(
                f"{place} holds channel {max(ids)}, but the layer has {width} input channels, "
                f"whose ids end at {width - 1}. Name channels that it has."
            )
        kept = np.zeros(width, dtype=np.bool_)
        kept[ids] = True
    if not kept.any():
        raise ArgumentError(
            f"{place} keeps nothing; a layer reads one channel at least. Keep the most important "
            "one, or take the layer out of the model."
        )
    return np.flatnonzero(~kept)
