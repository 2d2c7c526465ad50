"""Upper bounds on the integers that an operation outputs, for any data."""

import math
from collections.abc import Sequence

from nncfx.graph import Operation, operation_macs
from nncfx.operators import CONTRACTIONS, MOVEMENTS, operation_kind


def largest_sum(operation: Operation, largest: Sequence[float]) -> float:
    """Return the largest magnitude of the output, given that of each input; without the bias.

    Infinity for an unknown kind: its output may be too large for any register.
    """
    work = operation_kind(operation.function)
    if work in CONTRACTIONS:
        return largest[0] * largest[1] * _terms(operation)
    if work in ("add", "sub"):
        return sum(largest)
    if work == "mul":
        return largest[0] * largest[1]
    if work == "avg_pool":
        given = operation.inputs[0]
        assert given is not None  # noqa: S101 (an average has an input)
        return largest[0] * given.elements / max(operation.outputs[0].elements, 1)
    return max(largest) if work in {*MOVEMENTS, "clip", "concat", "relu"} else math.inf


def _terms(operation: Operation) -> int:
    """Return the largest number of products that a contraction sums for one output element."""
    weight = operation.inputs[1]
    if operation_kind(operation.function) == "conv_transpose" and weight is not None:
        return weight.elements // max(weight.shape[1], 1)
    return math.ceil(operation_macs(operation) / max(operation.outputs[0].elements, 1))
