"""Operands that do not depend on inputs, such as standardized or sliced weights."""

from collections.abc import Mapping
from functools import cache

import torch
from torch.nn import functional as F

from nncfx.graph import NNCFGraph, Operation
from nncfx.operators import operator_of


def constant_operands(graph: NNCFGraph) -> Mapping[str, Mapping[int, frozenset[str]]]:
    """Return the operands computed from parameters and buffers only, with the names of these.

    The result is keyed by address of the operation, then by port; an operand that is a stored
    tensor has one name. Ports that depend on inputs or random numbers are left out, and so are
    tensors of unknown origin, which can differ in the next forward.

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
    """Return the ports of which the operation reads the values."""
    role = operator_of(operation.function).role
    ports = enumerate(operation.inputs)
    return {port for port, one in ports if one is not None and role(port) != "like"}


@cache
def is_random(function: str) -> bool:
    """Return whether `function`, named as in addresses, may draw random numbers.

    Torch tags operators that do; a Python function does if it calls one of these.

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
