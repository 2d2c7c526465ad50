"""Which channel groups an algorithm may remove: the model's, less what a config spares."""

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
    'the code gives \'{place}\' the number of channels; with "form": "auto" in its params the '
    "algorithm prunes them, and thinning makes the module around it a graph module"
)
_UNTRAINED: Final = "no parameter makes them, so that they have no score"
_MULTIPLYING = ("attention", "contraction", "lookup")
_OF_ACTIVATIONS = ("attention", "matmul")
"""Kinds whose operands are activations; a layer's weight may be one that the forward computes."""


def spare(
    channels: Channels,
    model: nn.Module,
    graph: NNCFGraph,
    considered: Iterable[Operation],
    *,
    first: bool = False,
    downsampling: bool = False,
) -> Channels:
    """Return `channels` with the sets fixed, each with its reason, that shall not be touched.

    A set is touched only if every operation that produces its channels is among `considered` and
    not spared: groups go as a whole or not at all.

    Args:
        channels: Of the model.
        model: As it was traced.
        graph: Its trace.
        considered: The operations within the scopes.
        first: Spare convolutions that see a model input with no convolution between.
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
    """Return `channels` with the sets fixed of whose channels the code gives the number."""
    return channels.keeping(
        None if one.held is None else _HELD.format(place=one.held) for one in channels
    )


def take_trained(channels: Channels) -> Channels:
    """Return `channels` with the sets fixed that no parameter makes, but a buffer."""
    return channels.keeping(
        _UNTRAINED if all(m.is_buffer for m in one.by_role(Role.PRODUCER)) else None
        for one in channels
    )


def kept_first_convolutions(
    channels: Channels, model: nn.Module, graph: NNCFGraph
) -> Mapping[str, str]:
    """Return why first convolutions keep all channels, by address; no others are in it."""
    first = _first_convolutions(graph)
    makers = producing_operations(channels, model, graph)
    return {
        each.address: one.fixed
        for one, found in zip(channels.group_sets, makers, strict=True)
        for each in found
        if one.fixed is not None and each.address in first
    }


def take_branches(channels: Channels) -> Channels:
    """Return `channels` with all sets fixed but those through which alone a branch passes."""
    names = {one.name for one in branch_sets(channels)}
    return channels.keeping(
        None if one.name in names else "no residual branch goes with it" for one in channels
    )


def take_heads(channels: Channels, model: nn.Module, graph: NNCFGraph) -> Channels:
    """Return `channels` with all sets fixed but those of attention heads.

    These are the channels that an attention sums over or hands on: between the layers that make
    them and the layers that read them stands a product of two activations. A group is a whole
    head, or a dimension of all heads where the model's code lets dimensions go.
    """
    makers = producing_operations(channels, model, graph)
    return channels.keeping(
        None if _is_of_heads(one, found, graph) else "it is of no attention heads"
        for one, found in zip(channels, makers, strict=True)
    )


def take_neurons(channels: Channels, model: nn.Module, graph: NNCFGraph) -> Channels:
    """Return `channels` with all sets fixed but those that only linear layers make, no heads.

    Experts of a mixture, whose matrices lie in one parameter, are linear layers.
    """
    stacks = stacked_matrices(graph).keys()

    def reason(one: GroupSet, makers: list[Operation]) -> str | None:
        layers = [maker for maker in makers if stacks.isdisjoint(maker.parameters.values())]
        if _is_of_heads(one, layers, graph):
            return "it is of heads"
        is_linear = bool(makers) and all(layer.function in LINEAR_LAYERS for layer in layers)
        return None if is_linear else "not only linear layers make it"

    return channels.keeping(map(reason, channels, producing_operations(channels, model, graph)))


def producing_operations(
    channels: Channels, model: nn.Module, graph: NNCFGraph
) -> list[list[Operation]]:
    """Return, for each set of `channels`, the operations that make it with a parameter."""
    names = aliases(model)

    def first_name(name: str) -> str:
        return names.get(name, (name,))[0]  # a buffer has one

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
    """Return whether a product of two activations stands between `makers` and their readers."""
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
    # a functional call: its stride is not recorded, but no other one makes fewer outputs
    source, kernel = operation.inputs[:2]
    assert source is not None  # noqa: S101 (a convolution has an input)
    assert kernel is not None  # noqa: S101 (and a kernel)
    axes = zip(source.shape[2:], kernel.shape[2:], operation.outputs[0].shape[2:], strict=True)
    return any(out < extent - width + 1 for extent, width, out in axes)
