"""The operands of all operations of a graph."""

from collections.abc import Mapping

from nncfx.graph import NNCFGraph, Operation
from nncfx.hardware import operation_kind
from nncfx.quantization.changed_buffers import ChangedBuffers
from nncfx.quantization.constant_operands import constant_operands
from nncfx.quantization.operands import WITH_WEIGHT, Operands, operands_of
from nncfx.quantization.transposed import transposed_weights

__all__ = ["graph_operands"]


def graph_operands(graph: NNCFGraph, changed: ChangedBuffers) -> Mapping[str, Operands]:
    """Return the operands of each operation, by address.

    What is multiplied, or looked up in, and computed from `changed` alone is neither weight nor
    activation: the operation has a problem instead.
    """
    transposed, constant = transposed_weights(graph), constant_operands(graph)
    found = {}
    for one in graph.operations:
        made_of = constant[one.address]
        state = {port: changed.among(names) for port, names in made_of.items()}
        known = frozenset(port for port, buffer in state.items() if buffer is None)
        computed = known - one.parameters.keys()
        operands = operands_of(one, transposed.get(one.address), computed)
        found[one.address] = _without_state(one, operands, state)
    return found


def _without_state(
    operation: Operation, operands: Operands, state: Mapping[int, str | None]
) -> Operands:
    ports = sorted({*operands.activations, *operands.weights})
    buffer = next((one for port in ports if (one := state.get(port)) is not None), None)
    if buffer is None or operation_kind(operation.function) not in WITH_WEIGHT:
        return operands
    problem = f"its weight is the buffer '{buffer}', which the forward changes"
    return Operands(operands.activations, problem=problem)
