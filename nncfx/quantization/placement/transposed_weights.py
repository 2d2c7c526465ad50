"""Find weights that an operation reads transposed, as in `x @ weight.T`."""

from collections.abc import Mapping
from typing import Final

from nncfx.graph import NNCFGraph, Operation

_FUNCTIONS: Final = frozenset({"T", "mT", "swapaxes", "swapdims", "t", "transpose"})


def transposed_weights(graph: NNCFGraph) -> Mapping[str, Mapping[int, str]]:
    """Return the transposed matrices by the address and the port of the reader.

    The parameter itself can then be quantized with a scale for each output and stored as integers;
    its transposed copy could not.

    >>> import torch, nncfx
    >>> class Tied(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return x @ self.weight.T
    >>> graph = nncfx.wrap(Tied(2, 3), torch.ones(1, 2)).nncf.graph
    >>> transposed_weights(graph)
    {'Tied/__matmul___0': {1: 'weight'}}
    """
    found: dict[str, dict[int, str]] = {}
    for operation in graph.operations:
        if _is_transposed(operation):
            for edge in graph.outgoing(operation.address):
                found.setdefault(edge.target, {})[edge.target_port] = operation.parameters[0]
    return found


def _is_transposed(operation: Operation) -> bool:
    if operation.function not in _FUNCTIONS or list(operation.parameters) != [0]:
        return False
    weight = operation.inputs[0]
    return weight is not None and len(weight.shape) == 2  # noqa: PLR2004 (a matrix)
