"""Finds the layers that read channels: what each reads, from where, and at what cost."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from nncfx.controllers.base.weights import aliases
from nncfx.graph import NNCFGraph, Operation, macs
from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.operators import functions_of
from nncfx.reorder.segments import ChannelBlock, Reader

_CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED: Final = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FUNCTIONS: Final = functions_of("conv", "conv_transpose", "linear")
_READERS: Final = (*_CONVOLUTIONS, *_TRANSPOSED, nn.Linear)
_WEIGHT: Final = 1  # the port of the weight of convolutions and linear layers


@dataclass(frozen=True, kw_only=True, eq=False)
class Consumer:
    """A weight that reads channels.

    Attributes:
        weight: Its dotted name, the first of several.
        layers: The modules that hold it, if their inputs can be selected; else empty.
        source: The output that it reads, by address and port; None if it is read several times.
        weight_axis: The axis of the weight along which its columns lie.
        axis: The axis of the input along which the channels lie, counted from the end.
        live: For each column, whether any of its entries is not zero.
        members: The channels that it reads of each known set, by name.
        pixels: Numbers per channel in its input, over all calls of a forward.
        macs: Multiply-accumulates per column.
        is_sliced_free: Whether a slice of its input is contiguous in memory.
    """

    weight: str
    layers: tuple[str, ...]
    source: tuple[str, int] | None
    weight_axis: int
    axis: int
    live: npt.NDArray[np.bool_]
    members: Mapping[str, Member]
    pixels: int
    macs: float
    is_sliced_free: bool

    def reader(self, channels: Channels) -> Reader | None:
        """Return the input for ordering; None if no order helps this consumer.

        That is the case if none of its channels can move, or channels of one set are interleaved
        with those of another.
        """
        blocks: list[tuple[int, ChannelBlock]] = []
        keep: set[tuple[str, int]] = set()
        places = {column: f"{self.weight}[{column}]" for column in range(len(self.live))}
        for name, member in self.members.items():
            if not can_move(channels.find(name)):
                entries = member.indices.reshape(-1).tolist()
                places |= {column: f"{name}[{n}]" for n, column in enumerate(entries)}
                continue
            if not is_run(member.indices):
                return None
            wanted = np.flatnonzero(self.live[member.indices].any(axis=1)).tolist()
            keep.update((name, group) for group in wanted)
            blocks.append((int(member.indices[0, 0]), ChannelBlock(name, len(member.indices))))
            for column in member.indices.reshape(-1).tolist():
                del places[column]
        if not blocks:
            return None
        blocks += [(column, ChannelBlock(place, 1)) for column, place in places.items()]
        keep.update((place, 0) for column, place in places.items() if self.live[column])
        blocks.sort()
        cost = self.pixels * len(self.live) / sum(block.size for _, block in blocks)
        return Reader(blocks=tuple(b for _, b in blocks), keep=frozenset(keep), cost=cost)


def can_move(group_set: GroupSet) -> bool:
    """Return whether the groups of a set can be reordered."""
    return group_set.fixed is None and group_set.size > 1


def is_run(indices: npt.NDArray[np.int64]) -> bool:
    """Return whether the entries of all groups are consecutive."""
    flat = indices.reshape(-1)
    return bool((flat == np.arange(flat[0], flat[0] + len(flat))).all())


def consumers(model: nn.Module, channels: Channels, graph: NNCFGraph) -> list[Consumer]:
    """Return the consumers of the channels of `model`, in order of execution.

    Args:
        model: the analysed model.
        channels: of the model.
        graph: of the model.
    """
    members: dict[tuple[str, int], dict[str, Member]] = defaultdict(dict)
    for group_set in channels:
        for member in group_set.by_role(Role.CONSUMER):
            members[member.parameter, member.axis][group_set.name] = member
    tensors = dict(model.named_parameters(remove_duplicate=False))
    names, reading_of, counts = aliases(model), readers_of(model, graph), macs(graph)
    found = []
    for (name, weight_axis), of_sets in members.items():
        tensor, reading = tensors[name].detach(), reading_of[name]
        plain = all(plain_layer(model, alias, weight_axis, reading) for alias in names[name])
        layers = tuple(alias.rpartition(".")[0] for alias in names[name])
        axis = -1 if tensor.dim() == 2 else 1 - tensor.dim()  # noqa: PLR2004 (a matrix)
        columns = tensor.shape[weight_axis]
        inputs = [one.inputs[0] for one in reading]
        consumer = Consumer(
            weight=name,
            layers=layers if plain and {one.module for one in reading} <= set(layers) else (),
            source=_source(graph, reading),
            weight_axis=weight_axis,
            axis=axis,
            live=live_entries(tensor, weight_axis),
            members=of_sets,
            pixels=sum(one.elements for one in inputs if one is not None) // columns,
            macs=sum(counts.get(one.address, 0) for one in reading) / columns,
            is_sliced_free=all(
                one is not None and np.prod(one.shape[:axis]) == 1 for one in inputs
            ),
        )
        found.append(consumer)
    return found


def live_entries(weight: Tensor, axis: int, bias: Tensor | None = None) -> npt.NDArray[np.bool_]:
    """Return which rows or columns of a weight are not zero, or have a bias; at least one."""
    others = [other for other in range(weight.dim()) if other != axis]
    rows = (weight != 0).any(dim=others)
    live: npt.NDArray[np.bool_] = (rows if bias is None else rows | (bias != 0)).cpu().numpy()
    if not live.any():
        live[0] = True  # a layer reads, and computes, at least one channel
    return live


def readers_of(model: nn.Module, graph: NNCFGraph) -> Mapping[str, list[Operation]]:
    """Return, for every name of a parameter, the operations that read it under any name."""
    names = aliases(model)
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph.operations:
        for name in {alias for p in operation.parameters.values() for alias in names.get(p, ())}:
            found[name].append(operation)
    return found


def plain_layer(
    model: nn.Module, weight: str, columns_axis: int, reading: list[Operation]
) -> bool:
    """Return whether a weight belongs to a convolution or linear layer, and is only read there.

    Args:
        model: any module.
        weight: dotted name.
        columns_axis: the axis along which its columns must lie.
        reading: the operations that read it.
    """
    owner, _, attribute = weight.rpartition(".")
    layer = model.get_submodule(owner)
    if not isinstance(layer, _READERS) or attribute != "weight":
        return False
    if columns_axis != (0 if isinstance(layer, _TRANSPOSED) else 1):
        return False
    if not isinstance(layer, nn.Linear) and layer.groups != 1:
        return False
    return all(one.function in _FUNCTIONS and _WEIGHT in one.parameters for one in reading)


def _source(graph: NNCFGraph, reading: list[Operation]) -> tuple[str, int] | None:
    """Return the output that the only reader of a weight reads; None for several readers."""
    edges = [e for one in reading for e in graph.incoming(one.address) if e.target_port == 0]
    return (edges[0].source, edges[0].source_port) if len(edges) == 1 else None
