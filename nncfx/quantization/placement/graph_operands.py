"""The operands of all operations of a graph."""

from collections.abc import Mapping

from nncfx.graph import NNCFGraph
from nncfx.operators import operation_kind
from nncfx.quantization.placement.changed_buffers import ChangedBuffers
from nncfx.quantization.placement.operands import WITH_WEIGHT, Operands, operands_of
from nncfx.quantization.placement.transposed_weights import transposed_weights
from nncfx.tracing.record.constant_operands import constant_operands


def graph_operands(graph: NNCFGraph, changed: ChangedBuffers) -> Mapping[str, Operands]:
    """Return the operands of each operation, by address.

    An operation that multiplies by state (as `changed` tells), or looks it up, cannot be
    quantized: its `problem` names the buffer.
    """
    transposed, constant = transposed_weights(graph), constant_operands(graph)
    found = {}
    for one in graph.operations:
        made_of = constant[one.address]
        state = {port: changed.among(names) for port, names in made_of.items()}
        known = frozenset(port for port, buffer in state.items() if buffer is None)
        computed = known - one.parameters.keys()
        operands = operands_of(one, transposed.get(one.address), computed)
        ports = sorted({*operands.activations, *operands.weights})
        buffer = next((state[port] for port in ports if state.get(port) is not None), None)
        if buffer is not None and operation_kind(one.function) in WITH_WEIGHT:
            when = "" if buffer in changed.evaluating else " in training"
            problem = f"its weight is '{buffer}', which the forward changes{when}"
            operands = Operands(operands.activations, problem=problem)
        found[one.address] = operands
    return found
