"""Weights that a forward computes from parameters, such as standardized or sliced ones."""

from collections.abc import Mapping
from typing import Final

from nncfx.graph import NNCFGraph, Operation

__all__ = ["computed_weights"]

_RANDOM: Final = frozenset(
    {"alpha_dropout", "bernoulli", "dropout", "feature_dropout", "normal", "rand_like"}
    | {"randn_like", "rrelu"}
)


def computed_weights(graph: NNCFGraph) -> Mapping[str, frozenset[int]]:
    """Return, by the address of each operation, the ports at which it reads what no input changes.

    That is what operations compute from parameters and buffers alone. Ports at which a parameter
    itself is read are left out, and so is what comes from nowhere: it may be another one in the
    next forward.

    >>> import torch, nncfx
    >>> class Centred(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return torch.nn.functional.linear(x, self.weight - self.weight.mean())
    >>> graph = nncfx.wrap(Centred(2, 3), torch.ones(1, 2)).nncf.graph
    >>> computed_weights(graph)["Centred/linear_0"]
    frozenset({1})
    """
    constant: set[str] = set()
    found: dict[str, frozenset[int]] = {}
    for operation in graph.operations:
        edges = graph.incoming(operation.address)
        found[operation.address] = frozenset(
            one.target_port for one in edges if one.source in constant
        )
        if _is_constant(operation, found[operation.address]):
            constant.add(operation.address)
    return found


def _is_constant(operation: Operation, ports: frozenset[int]) -> bool:
    read = {port for port, one in enumerate(operation.inputs) if one is not None}
    known = ports | operation.parameters.keys()
    return bool(read) and read <= known and operation.function.rstrip("_") not in _RANDOM
