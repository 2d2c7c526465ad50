"""Operands that no input changes, such as standardized or sliced weights."""

from collections.abc import Mapping
from functools import cache

import torch
from torch.nn import functional as F

from nncfx.graph import NNCFGraph, Operation
from nncfx.operators import operator_of


def constant_operands(graph: NNCFGraph) -> Mapping[str, Mapping[int, frozenset[str]]]:
    """Return the parameters and buffers from which alone operands are computed.

    By the address of the operation and the port: names of one, where it is read as it is stored.
    Ports that an input or chance changes are left out, and so is what comes from nowhere: it may
    be another one in the next forward.

    >>> import torch, nncfx
    >>> class Centred(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return torch.nn.functional.linear(x, self.weight - self.weight.mean())
    >>> graph = nncfx.wrap(Centred(2, 3), torch.ones(1, 2)).nncf.graph
    >>> constant_operands(graph)["Centred/linear_0"]
    {1: frozenset({'weight'})}
    """
    made_of: dict[str, frozenset[str]] = {}
    found: dict[str, Mapping[int, frozenset[str]]] = {}
    for operation in graph.operations:
        edges = graph.incoming(operation.address)
        known = {port: frozenset([name]) for port, name in operation.parameters.items()}
        known |= {one.target_port: made_of[one.source] for one in edges if one.source in made_of}
        found[operation.address] = known
        read = _read(operation)
        if read and read <= known.keys() and not is_random(operation.function):
            made_of[operation.address] = frozenset().union(*(known[port] for port in read))
    return found


def _read(operation: Operation) -> set[int]:
    """Return the ports whose values the operation reads."""
    role = operator_of(operation.function).role
    ports = enumerate(operation.inputs)
    return {port for port, one in ports if one is not None and role(port) != "like"}


@cache
def is_random(function: str) -> bool:
    """Return whether `function`, as addresses spell it, may draw random numbers.

    Torch tags its operators that do; a function written in Python does if it calls one.

    >>> [is_random(one) for one in ("dropout", "gumbel_softmax", "uniform_", "linear", "__add__")]
    [True, True, True, False, False]
    """
    code = getattr(getattr(F, function, None), "__code__", None)
    called = () if code is None else code.co_names
    return _is_tagged(function) or any(map(_is_tagged, called))


def _is_tagged(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    return isinstance(packet, torch._ops.OpOverloadPacket) and any(  # noqa: SLF001 (no public name)
        torch.Tag.nondeterministic_seeded in getattr(packet, one).tags
        for one in packet.overloads()  # type: ignore[no-untyped-call]  # torch leaves it so
    )
