"""Find the weights that an algorithm may change, and all sites where they are read."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import torch
from torch import nn

from nncfx.graph import Operation
from nncfx.graph.stacked_matrices import stacked_matrices
from nncfx.network import NNCFNetwork
from nncfx.operators import NORMS, operation_kind, operator_of
from nncfx.tracing import Insertion, WeightSite
from nncfx.tracing.record.constant_operands import constant_operands

H = TypeVar("H", bound=nn.Module)

_COPIES: Final = frozenset({"clone", "contiguous", "detach"})
"""Functions other than casts whose result has the elements of their input in place."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weight:
    """A parameter with at least two axes that operations read as a weight.

    Attributes:
        name: Its first dotted name.
        sites: All places where a module holds it; several if modules share it.
        readers: Addresses of the operations that read it.
        is_stack: Whether it is a stack of experts' matrices, as found by `stacked_matrices`.
    """

    name: str
    sites: tuple[WeightSite, ...]
    readers: tuple[str, ...]
    is_stack: bool = False


def raw_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the stored parameters, before any hook, under all their dotted names."""
    return dict(model.named_parameters(remove_duplicate=False))


def constants_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the raw parameters and the floating-point buffers, which can be weights."""
    buffers = model.named_buffers(remove_duplicate=False)
    return {
        **{name: one for name, one in buffers if one.is_floating_point()},
        **raw_parameters(model),
    }


def aliases(model: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """Return, for every dotted name of a parameter, all names of the same parameter, in order."""
    by_identity: dict[int, list[str]] = {}
    parameters = raw_parameters(model)
    for name, parameter in parameters.items():
        by_identity.setdefault(id(parameter), []).append(name)
    return {name: tuple(by_identity[id(one)]) for name, one in parameters.items()}


def hooks_by_weight(
    model: nn.Module, insertions: Iterable[Insertion], kind: type[H]
) -> dict[str, H]:
    """Return the hooks of type `kind` among `insertions`, by the first name of their weights."""
    names = aliases(model)
    return {names[str(one.site)][0]: one.hook for one in insertions if isinstance(one.hook, kind)}


def operation_weights(model: NNCFNetwork, considered: Iterable[Operation]) -> list[Weight]:
    """Return the weights that `considered` operations read, in order of execution.

    Weights that other operations read too are left out, because ignoring an operation means
    ignoring its weight, and so are weights without entries, of layers of no width. A weight that
    is cast or copied before an operation counts as read by it.
    """
    wanted = {one.address for one in considered}
    names = aliases(model)
    parameters = raw_parameters(model)
    stacks = {names[name][0] for name in stacked_matrices(model.nncf.graph)}
    readers: dict[str, list[str]] = {}
    graph, same = model.nncf.graph, dict[str, str]()
    for one in graph.operations:
        edges = graph.incoming(one.address)
        read = dict(one.parameters) | {
            edge.target_port: same[edge.source] for edge in edges if edge.source in same
        }
        if 0 in read and _is_cast(one.function):
            same[one.address] = read[0]
            continue
        has_weight = operator_of(one.function).has_weight
        for name in read.values():
            weight = parameters.get(name)
            is_matrix = weight is not None and weight.ndim > 1 and weight.numel()
            if is_matrix and (has_weight or names[name][0] in stacks):
                readers.setdefault(names[name][0], []).append(one.address)
    return [
        Weight(
            name=name,
            sites=tuple(WeightSite.of(alias) for alias in names[name]),
            readers=tuple(addresses),
            is_stack=name in stacks,
        )
        for name, addresses in readers.items()
        if wanted.issuperset(addresses)
    ]


def _is_cast(function: str) -> bool:
    return operator_of(function).channels == "cast" or function in _COPIES


def computed_from(model: NNCFNetwork, considered: Iterable[Operation]) -> dict[str, str]:
    """Return the matrices from which the forward computes weights, with the functions that read.

    The functions of `considered` operations are keyed by the matrices' first dotted names.
    Matrices that an operation also reads directly are left out.

    >>> import torch, nncfx
    >>> class Scaled(nn.Linear):
    ...     def forward(self, x):
    ...         return nn.functional.linear(x, self.weight * 0.5)
    >>> model = nncfx.wrap(Scaled(2, 3), torch.ones(1, 2))
    >>> computed_from(model, model.nncf.graph.operations)
    {'weight': 'linear'}
    """
    graph = model.nncf.graph
    names, parameters = aliases(model), raw_parameters(model)
    read = {name for one in operation_weights(model, graph.operations) for name in names[one.name]}
    operands = constant_operands(graph)
    return {
        names[name][0]: one.function
        for one in considered
        if operator_of(one.function).has_weight
        for port, made_of in operands[one.address].items()
        if port not in one.parameters
        for name in sorted(made_of - read)
        if name in parameters and parameters[name].ndim > 1
    }


def norm_parameters(model: nn.Module, operations: Iterable[Operation]) -> frozenset[str]:
    """Return the first names of the parameters that only normalizations read."""
    names = aliases(model)
    readers: dict[str, set[str]] = {}
    for one in operations:
        for parameter in one.parameters.values():
            if parameter in names:
                readers.setdefault(names[parameter][0], set()).add(operation_kind(one.function))
    return frozenset(name for name, kinds in readers.items() if kinds <= NORMS)
