"""A strategy: what is quantized, with how many bits, up to which thresholds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jsonschema

from nncfx.errors import ArgumentError, CompressionError, StorageError
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.rules.topology import Topology
from nncfx.targets import Hardware

__all__ = [
    "FEWEST_BITS",
    "MOST_BITS",
    "Strategy",
    "Threshold",
    "require_hash",
    "require_inputs",
    "require_same_model",
]

FEWEST_BITS: Final = 2
MOST_BITS: Final = 32
"""What integers have at least, with a sign, and at most."""

Threshold = float | tuple[float, ...]
"""The largest magnitude that is represented: one, or one per output channel of a weight."""


@dataclass(frozen=True)
class Strategy:
    """Everything that turns a model into a quantized one on a given hardware.

    Attributes:
        model_hash: Of the graph it was found for.
        topology: What is quantized.
        bits: Of every quantized edge, in order.
        thresholds: Of every node's output, in order.
    """

    model_hash: int
    topology: Topology
    bits: tuple[int, ...]
    thresholds: tuple[Threshold, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the strategy as a JSON object."""
        return {
            "model_hash": self.model_hash,
            "topology": {
                "node_conds": list(self.topology.node_conds),
                "edge_conds": list(self.topology.edge_conds),
            },
            "bits": list(self.bits),
            "thresholds": [
                list(one) if isinstance(one, tuple) else one for one in self.thresholds
            ],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Strategy":
        """Return the strategy that `to_json` wrote.

        Raises:
            StorageError: `record` is no strategy.
        """
        try:
            jsonschema.validate(record, _SCHEMA)
        except jsonschema.ValidationError as error:
            raise StorageError(
                f"This is no strategy: {error.json_path}: {error.message}. "
                "Give what nncfx.hago wrote.",
            ) from error
        return cls(
            record["model_hash"],
            Topology(
                tuple(record["topology"]["node_conds"]),
                tuple(record["topology"]["edge_conds"]),
            ),
            tuple(record["bits"]),
            tuple(_threshold(one) for one in record["thresholds"]),
        )


def require_same_model(graph: QuantGraph, strategy: Strategy) -> None:
    """Return if `strategy` was found for `graph`.

    Raises:
        CompressionError: it was found for another model, or for other weights of this one.
    """
    require_hash(strategy, graph.model_hash)


def require_inputs(graph: object, hardware: object) -> None:
    """Return if these are a graph and a description of hardware.

    Raises:
        ArgumentError: one is something else, such as a model or the name of a hardware.
    """
    if not isinstance(graph, QuantGraph):
        raise ArgumentError(
            f"The graph is a {type(graph).__name__}. Give what "
            "hago.prepare_graph(model, example_inputs) returns.",
        )
    if not isinstance(hardware, Hardware):
        raise ArgumentError(
            f"The hardware is {hardware!r}. Give a nncfx.targets.Hardware, such as "
            "hardware_named('onnxruntime').",
        )


def require_hash(strategy: Strategy, model_hash: int) -> None:
    """Return if `strategy` was found for the model with this hash.

    Raises:
        CompressionError: it was found for another model, or for other weights of this one.
    """
    if strategy.model_hash != model_hash:
        raise CompressionError(
            f"The strategy was found for the model with hash {strategy.model_hash}, and this one "
            f"has {model_hash}: bits and thresholds hold for one set of weights only. "
            "Prepare the model that was searched, with its weights, or search again.",
        )


def _threshold(value: float | Sequence[float]) -> Threshold:
    return tuple(map(float, value)) if isinstance(value, Sequence) else float(value)


_CONDITIONS = {"type": "array", "items": {"type": "boolean"}}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_BITS = {"type": "integer", "minimum": FEWEST_BITS, "maximum": MOST_BITS}
_SCHEMA = {
    "type": "object",
    "required": ["model_hash", "topology", "bits", "thresholds"],
    "additionalProperties": False,
    "properties": {
        "model_hash": {"type": "integer"},
        "topology": {
            "type": "object",
            "required": ["node_conds", "edge_conds"],
            "additionalProperties": False,
            "properties": {"node_conds": _CONDITIONS, "edge_conds": _CONDITIONS},
        },
        "bits": {"type": "array", "items": _BITS},
        "thresholds": {
            "type": "array",
            "items": {"anyOf": [_POSITIVE, {"type": "array", "items": _POSITIVE, "minItems": 1}]},
        },
    },
}
