"""Buffers that a forward writes to, such as a memory bank or a codebook that training updates.

They are not weights: their range changes over time, and a hook would return a copy, so the
forward's writes would be lost.
"""

import logging
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from nncfx.controllers.base.weights import constants_of, raw_parameters
from nncfx.errors import TracingError
from nncfx.network import NNCFNetwork
from nncfx.operators import operation_kind
from nncfx.quantization.placement.operands import WITH_WEIGHT
from nncfx.tracing.record.constant_operands import constant_operands
from nncfx.tracing.record.tensor_writes import written_tensors

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ChangedBuffers:
    """The buffers and parameters that a forward writes to, by dotted name.

    Attributes:
        evaluating: Those it writes to in evaluation mode.
        training: Those it writes to in training mode.
    """

    evaluating: frozenset[str] = frozenset()
    training: frozenset[str] = frozenset()

    def among(self, names: AbstractSet[str]) -> str | None:
        """Return the buffer that makes a value computed from `names` state; None for a weight.

        Buffers that only training changes do not count if a constant is among `names`, as in
        spectral norm.
        """
        found = names & self.evaluating
        if not found and names <= self.evaluating | self.training:
            found = names
        return min(found, default=None)


NO_CHANGES: Final = ChangedBuffers()


def changed_buffers(model: NNCFNetwork) -> ChangedBuffers:
    """Return which multiplied tensors and lookup tables the forward changes.

    If a buffer is among them, the model runs twice on the example inputs, by shapes only, the
    second time in training mode. If that run fails, a warning says so, because the buffers are
    then treated as weights.
    """
    graph, stored = model.nncf.graph, constants_of(model)
    read = constant_operands(graph)
    names = frozenset[str]().union(
        *(
            name
            for one in graph.operations
            if operation_kind(one.function) in WITH_WEIGHT
            for name in read[one.address].values()
        )
    )
    buffers = (names & stored.keys()) - raw_parameters(model).keys()
    written = names & model.nncf.folded_weights
    if not buffers:
        return ChangedBuffers(evaluating=written)
    inputs = model.nncf.example_inputs
    evaluating = written_tensors(model, inputs, buffers, train=False)
    try:
        training = written_tensors(model, inputs, buffers, train=True)
    except TracingError as error:
        _LOGGER.warning(
            "Buffers that are quantized as weights: %s. Whether training changes them is not "
            "known, since a forward in training mode fails: %s If it does, name the operations "
            "that read them in ignored_scopes.",
            ", ".join(f"'{one}'" for one in sorted(buffers - evaluating)),
            error,
        )
        training = frozenset()
    return ChangedBuffers(evaluating=evaluating | written, training=training)
