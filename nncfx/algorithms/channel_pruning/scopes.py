"""Select the channel groups that an algorithm may remove."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from torch import nn
from torch.nn.modules.conv import _ConvNd

from nncfx.controllers.base.weights import aliases
from nncfx.graph import NNCFGraph, Operation, input_address, output_address
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.graph.stacked_matrices import stacked_matrices
from nncfx.operators import LINEAR_LAYERS, operation_kind, operator_of
from nncfx.schemes import branch_sets

_HELD = (
    'the code gives \'{place}\' its number of channels; with "form": "auto" in its params the '
    "algorithm prunes them, and thinning makes the module around it a graph module"
)
_UNTRAINED: Final = "no parameter produces them, so they have no score"
_MULTIPLYING = ("attention", "contraction", "lookup")
_OF_ACTIVATIONS = ("attention", "matmul")
"""Kinds of products of two activations, unlike layers, whose weight the forward may compute."""


def spare(
    channels: Channels,
    model: nn.Module,
    graph: NNCFGraph,
    considered: Iterable[Operation],
    *,
    first: bool = False,
    downsampling: bool = False,
) -> Channels:
    """Return `channels` with the sets that must not be pruned fixed, each with its reason.

    A set is prunable only if all operations that produce its channels are among `considered` and
    not spared, since groups are removed as a whole or not at all.

    Args:
        channels: The model's channels.
        model: The model as it was traced.
        graph: Its trace.
        considered: The operations within the scopes.
        first: Spare convolutions with a path from a model input without another convolution.
        downsampling: Spare convolutions with a stride above 1.
    """
    inside = {one.address for one in considered}
    reasons = {
        address: f"'{address}' is outside the scopes of the config"
        for address in graph.addresses
        if address not in inside
    }
    for address in _first_convolutions(graph) if first else ():
        text = f"'{address}' is a first convolution, and prune_first_conv is false"
        reasons.setdefault(address, text)
    for one in graph.operations if downsampling else ():
        if _is_downsampling(one, model):
            text = f"'{one.address}' has a stride, and prune_downsample_convs is false"
            reasons.setdefault(one.address, text)
    return channels.keeping(
        next((reasons[one.address] for one in makers if one.address in reasons), None)
        for makers in producing_operations(channels, model, graph)
    )


def keep_classes(channels: Channels) -> Channels:
    """Return `channels` with the sets fixed whose number of channels is set in the code."""
    return channels.keeping(
        None if one.held is None else _HELD.format(place=one.held) for one in channels
    )


def take_trained(channels: Channels) -> Channels:
    """Return `channels` with the sets fixed that only buffers produce."""
    return channels.keeping(
        _UNTRAINED if all(m.is_buffer for m in one.by_role(Role.PRODUCER)) else None
        for one in channels
    )


def kept_first_convolutions(
    channels: Channels, model: nn.Module, graph: NNCFGraph
) -> Mapping[str, str]:
    """Return why first convolutions keep all channels, by address."""
    first = _first_convolutions(graph)
    makers = producing_operations(channels, model, graph)
    return {
        each.address: one.fixed
        for one, found in zip(channels.group_sets, makers, strict=True)
        for each in found
        if one.fixed is not None and each.address in first
    }


def take_branches(channels: Channels) -> Channels:
    """Return `channels` with all sets fixed except those that carry a whole branch."""
    names = {one.name for one in branch_sets(channels)}
    return channels.keeping(
        None if one.name in names else "no residual branch goes with it" for one in channels
    )


def take_heads(channels: Channels, model: nn.Module, graph: NNCFGraph) -> Channels:
    """Return `channels` with all sets fixed except those of attention heads.

    These are the channels that an attention sums over or passes on, with a product of two
    activations between the layers that produce and that consume them. A group is a whole head, or
    a dimension of all heads if the model's code allows removing dimensions.
    """
    makers = producing_operations(channels, model, graph)
    return channels.keeping(
        None if _is_of_heads(one, found, graph) else "it does not belong to attention heads"
        for one, found in zip(channels, makers, strict=True)
    )


def take_neurons(channels: Channels, model: nn.Module, graph: NNCFGraph) -> Channels:
    """Return `channels` with all sets fixed except those of linear layers only, without heads.

    Experts of a mixture, whose matrices lie in one parameter, are linear layers.
    """
    stacks = stacked_matrices(graph).keys()

    def reason(one: GroupSet, makers: list[Operation]) -> str | None:
        layers = [maker for maker in makers if stacks.isdisjoint(maker.parameters.values())]
        if _is_of_heads(one, layers, graph):
            return "it belongs to attention heads"
        is_linear = bool(makers) and all(layer.function in LINEAR_LAYERS for layer in layers)
        return None if is_linear else "not only linear layers produce it"

    return channels.keeping(map(reason, channels, producing_operations(channels, model, graph)))


def producing_operations(
    channels: Channels, model: nn.Module, graph: NNCFGraph
) -> list[list[Operation]]:
    """Return, for each set of `channels`, the operations that produce it with a parameter."""
    names = aliases(model)

    def first_name(name: str) -> str:
        return names.get(name, (name,))[0]  # a buffer has no aliases

    readers: dict[str, list[Operation]] = {}
    for one in graph.operations:
        for parameter in one.parameters.values():
            readers.setdefault(first_name(parameter), []).append(one)
    return [
        [o for m in one.by_role(Role.PRODUCER) for o in readers.get(first_name(m.parameter), ())]
        for one in channels.group_sets
    ]


def read_within(channels: Channels, model: nn.Module, considered: Iterable[Operation]) -> Channels:
    """Return `channels` without the consumers that no `considered` operation reads."""
    names = aliases(model)
    inside = {
        name for one in considered for p in one.parameters.values() for name in names.get(p, ())
    }
    return dataclasses.replace(
        channels,
        group_sets=tuple(
            dataclasses.replace(
                one,
                members=tuple(
                    m for m in one.members if m.role is not Role.CONSUMER or m.parameter in inside
                ),
            )
            for one in channels.group_sets
        ),
    )


def _is_of_heads(group_set: GroupSet, makers: Iterable[Operation], graph: NNCFGraph) -> bool:
    """Return whether a product of two activations lies between `makers` and their readers."""
    if not group_set.by_role(Role.CONSUMER):
        return False
    seen = {output_address(index) for index in range(len(graph.outputs))}
    pending = [one.address for one in makers]
    while pending:
        for edge in graph.outgoing(pending.pop()):
            if edge.target in seen:
                continue
            seen.add(edge.target)
            reader = graph.find(edge.target)
            if operator_of(reader.function).work not in _MULTIPLYING:
                pending.append(edge.target)
            elif not reader.parameters and operation_kind(reader.function) in _OF_ACTIVATIONS:
                return True
    return False


def _first_convolutions(graph: NNCFGraph) -> set[str]:
    """Return the addresses of convolutions that an input reaches through no other convolution."""
    first: set[str] = set()
    seen: set[str] = set()
    pending = [input_address(index) for index in range(len(graph.inputs))]
    while pending:
        for edge in graph.outgoing(pending.pop()):
            if edge.target in seen:
                continue
            seen.add(edge.target)
            function = edge.target.rpartition("/")[2].rpartition("_")[0]
            if operation_kind(function) in ("conv", "conv_transpose"):
                first.add(edge.target)
            else:
                pending.append(edge.target)
    return first


def _is_downsampling(operation: Operation, model: nn.Module) -> bool:
    if operation_kind(operation.function) != "conv":
        return False
    module = model.get_submodule(operation.module)
    if isinstance(module, _ConvNd):
        return any(stride > 1 for stride in module.stride)
    # the stride of a functional call is not recorded, but only a stride reduces the outputs so far
    source, kernel = operation.inputs[:2]
    assert source is not None  # noqa: S101 (a convolution has an input)
    assert kernel is not None  # noqa: S101 (and a kernel)
    axes = zip(source.shape[2:], kernel.shape[2:], operation.outputs[0].shape[2:], strict=True)
    return any(out < extent - width + 1 for extent, width, out in axes)
