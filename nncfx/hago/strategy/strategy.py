"""A strategy: what is quantized, with how many bits, and up to which thresholds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from nncfx.errors import ArgumentError, CompressionError, StorageError
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.rules.topology import Topology
from nncfx.json_codec import Limits, decode, encode
from nncfx.targets import Hardware

FEWEST_BITS: Final = 2
MOST_BITS: Final = 32
"""The most bits of an integer; the fewest are 2, including the sign."""

_Positive: TypeAlias = Annotated[float, Limits(above=0)]
Threshold: TypeAlias = _Positive | Annotated[tuple[_Positive, ...], Limits(min_items=1)]
"""The largest represented magnitude: one, or one per output channel of a weight."""


@dataclass(frozen=True)
class Strategy:
    """Everything needed to quantize a model for a given hardware.

    Attributes:
        model_hash: Of the graph that it was found for.
        topology: What is quantized.
        bits: Of every quantized edge, in order.
        thresholds: Of every node's output, in order.
    """

    model_hash: int
    topology: Topology
    bits: tuple[Annotated[int, Limits(minimum=FEWEST_BITS, maximum=MOST_BITS)], ...]
    thresholds: tuple[Threshold, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the strategy as a JSON object."""
        written: dict[str, Any] = encode(self)
        return written

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Strategy":
        """Return the strategy that `to_json` wrote.

        Raises:
            StorageError: `record` is not a strategy.
        """
        try:
            return decode(cls, record)
        except StorageError as error:
            raise StorageError(
                f"This is not a strategy: {error} Give what nncfx.hago wrote."
            ) from error


def require_inputs(graph: object, hardware: object) -> None:
    """Check that these are a graph and a hardware description.

    Raises:
        ArgumentError: one is something else, such as a model or the name of a hardware.
    """
    if not isinstance(graph, QuantGraph):
        raise ArgumentError(
            f"The graph is a {type(graph).__name__}. Give what "
            "hago.prepare_graph(model, example_inputs) returns."
        )
    if not isinstance(hardware, Hardware):
        raise ArgumentError(
            f"The hardware is {hardware!r}. Give a nncfx.targets.Hardware, such as "
            "hardware_named('onnxruntime')."
        )


def require_hash(strategy: Strategy, model_hash: int) -> None:
    """Check that `strategy` was found for the model with this hash.

    Raises:
        CompressionError: it was found for another model, or for other weights of this one.
    """
    if strategy.model_hash != model_hash:
        raise CompressionError(
            f"The strategy was found for the model with hash {strategy.model_hash}, and this one "
            f"has {model_hash}: bits and thresholds hold for one set of weights only. "
            "Prepare the model that was searched, with its weights, or search again."
        )
