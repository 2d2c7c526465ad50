"""Finds the layers of a model that output channels of zeros."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import nn

from nncfx.graph import NNCFGraph, macs
from nncfx.graph.channels import Channels, Member, Role
from nncfx.reorder.consumers import can_move, is_run, live_entries, plain_layer, readers_of
from nncfx.reorder.segments import ChannelBlock, Reader

_MATRIX = 2  # axes of the weight of a linear layer


@dataclass(frozen=True, kw_only=True, eq=False)
class Producer:
    """A layer that outputs channels of zeros besides others.

    Attributes:
        layer: Its dotted name.
        weight: The name of its weight.
        bias: The name of its bias; None without one.
        weight_axis: The axis of the weight along which its rows lie.
        axis: The axis of the output along which the channels lie, counted from the end.
        live: For each row, whether any of its entries, or its bias, is not zero.
        members: The channels that it creates of each set, by name.
        pixels: Numbers per channel in its output, over all calls of a forward.
        macs: Multiply-accumulates per row.
    """

    layer: str
    weight: str
    bias: str | None
    weight_axis: int
    axis: int
    live: npt.NDArray[np.bool_]
    members: dict[str, Member]
    pixels: int
    macs: float

    def reader(self, channels: Channels) -> Reader | None:
        """Return the input for ordering, as if the layer read its output; None if no order helps.

        Zeros before and after adjacent channels cost less than zeros in between.
        """
        if len(self.members) > 1:
            return None
        ((name, member),) = self.members.items()
        if not can_move(channels.find(name)) or not is_run(member.indices):
            return None
        wanted = np.flatnonzero(self.live[member.indices].any(axis=1)).tolist()
        size = len(member.indices)
        return Reader(
            blocks=(ChannelBlock(name, size),),
            keep=frozenset((name, group) for group in wanted),
            cost=self.pixels * len(self.live) / size,
        )


def producers(model: nn.Module, channels: Channels, graph: NNCFGraph) -> list[Producer]:
    """Return the producers of `model` with rows of zeros, in order of execution.

    Args:
        model: the analysed model.
        channels: of the model.
        graph: of the model.
    """
    tensors = dict(model.named_parameters(remove_duplicate=False))
    members: dict[tuple[str, int], dict[str, Member]] = defaultdict(dict)
    for group_set in channels:
        for member in group_set.by_role(Role.PRODUCER):
            if member.parameter in tensors and tensors[member.parameter].dim() > 1:
                members[member.parameter, member.axis][group_set.name] = member
    reading, counts = readers_of(model, graph), macs(graph)
    found = []
    for (name, axis), of_sets in members.items():
        layer, weight = name.rpartition(".")[0], tensors[name].detach()
        calls = reading[name]
        is_alone = {one.module for one in calls} == {layer}
        if not is_alone or not plain_layer(model, name, 1 - axis, calls):
            continue
        bias = f"{layer}.bias" if f"{layer}.bias" in tensors else None
        live = live_entries(weight, axis, None if bias is None else tensors[bias].detach())
        if not live.all():
            producer = Producer(
                layer=layer,
                weight=name,
                bias=bias,
                weight_axis=axis,
                axis=-1 if weight.dim() == _MATRIX else 1 - weight.dim(),
                live=live,
                members=of_sets,
                pixels=sum(one.outputs[0].elements for one in calls) // len(live),
                macs=sum(counts.get(one.address, 0) for one in calls) / len(live),
            )
            found.append(producer)
    return found
