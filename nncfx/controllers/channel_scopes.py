"""Which channel groups an algorithm may remove: the model's, less what a config spares."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import final

from torch import nn
from torch.nn.modules.conv import _ConvNd

from nncfx.controllers.weights import aliases
from nncfx.graph import NNCFGraph, Operation, input_address
from nncfx.graph.channels import Channels, GroupSet, Role

__all__ = ["Spared", "read_within", "spare"]

_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d"})
_TRANSPOSED = frozenset({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Spared:
    """Which producers keep all their channels.

    Attributes:
        first: Convolutions that see a model input with no convolution between.
        downsampling: Convolutions with a stride above 1.
    """

    first: bool
    downsampling: bool


def spare(
    channels: Channels,
    model: nn.Module,
    graph: NNCFGraph,
    considered: Iterable[Operation],
    spared: Spared,
) -> Channels:
    """Return `channels` with the sets fixed, each with its reason, that shall not be touched.

    A set is touched only if every operation that produces its channels is among `considered` and
    not `spared`: groups go as a whole or not at all.
    """
    reasons = _reasons(model, graph, considered, spared)
    names = aliases(model)
    readers: dict[str, list[Operation]] = {}
    for one in graph.operations:
        for parameter in one.parameters.values():
            readers.setdefault(names.get(parameter, (parameter,))[0], []).append(one)
    sets = []
    for group_set in channels.group_sets:
        producers = (m.parameter for m in group_set.members if m.role is Role.PRODUCER)
        addresses = (one.address for p in producers for one in readers.get(names[p][0], ()))
        reason = next((reasons[address] for address in addresses if address in reasons), None)
        sets.append(_fixed(group_set, reason))
    return Channels(tuple(sets))


def read_within(
    channels: Channels,
    model: nn.Module,
    considered: Iterable[Operation],
) -> Channels:
    """Return `channels` without the consumers that no `considered` operation reads."""
    names = aliases(model)
    inside = {
        name for one in considered for p in one.parameters.values() for name in names.get(p, ())
    }
    return Channels(
        tuple(
            dataclasses.replace(
                one,
                members=tuple(
                    m for m in one.members if m.role is not Role.CONSUMER or m.parameter in inside
                ),
            )
            for one in channels.group_sets
        )
    )


def _fixed(group_set: GroupSet, reason: str | None) -> GroupSet:
    if reason is None or group_set.fixed is not None:
        return group_set
    return dataclasses.replace(group_set, fixed=reason)


def _reasons(
    model: nn.Module,
    graph: NNCFGraph,
    considered: Iterable[Operation],
    spared: Spared,
) -> Mapping[str, str]:
    """Return why the operations at some addresses keep their channels."""
    inside = {one.address for one in considered}
    reasons = {
        address: f"'{address}' is outside the scopes of the config"
        for address in graph.addresses
        if address not in inside
    }
    if spared.first:
        for address in _first_convolutions(graph):
            text = f"'{address}' is a first convolution, and prune_first_conv is false"
            reasons.setdefault(address, text)
    if spared.downsampling:
        for one in graph.operations:
            if _is_downsampling(one, model):
                text = f"'{one.address}' has a stride, and prune_downsample_convs is false"
                reasons.setdefault(one.address, text)
    return reasons


def _first_convolutions(graph: NNCFGraph) -> set[str]:
    """Return the addresses of convolutions with a path from an input without another one."""
    first: set[str] = set()
    seen: set[str] = set()
    pending = [input_address(index) for index in range(len(graph.inputs))]
    while pending:
        for edge in graph.outgoing(pending.pop()):
            if edge.target in seen:
                continue
            seen.add(edge.target)
            function = edge.target.rpartition("/")[2].rpartition("_")[0]
            if function in _CONVOLUTIONS | _TRANSPOSED:
                first.add(edge.target)
            else:
                pending.append(edge.target)
    return first


def _is_downsampling(operation: Operation, model: nn.Module) -> bool:
    if operation.function not in _CONVOLUTIONS:
        return False
    module = model.get_submodule(operation.module)
    if isinstance(module, _ConvNd):
        return any(stride > 1 for stride in module.stride)
    # a functional call: its stride is not recorded, but no other one makes fewer outputs
    source, kernel = operation.inputs[:2]
    assert source is not None  # noqa: S101 (a convolution has an input)
    assert kernel is not None  # noqa: S101 (and a kernel)
    axes = zip(source.shape[2:], kernel.shape[2:], operation.outputs[0].shape[2:], strict=True)
    return any(out < extent - width + 1 for extent, width, out in axes)
