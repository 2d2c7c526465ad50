"""The compressed network as plain data: its operations and its weights."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OperationFacts:
    """One operation of the compressed model, in execution order.

    Attributes:
        address: As in the graph: scope, function and number of the call.
        module: Dotted name of the module that calls it; "" for the model itself.
        inputs: Positions, from 0, of the operations whose outputs it reads; -1 is an input of the
            model.
        shape: Of its first output, such as "1 x 16 x 8 x 8".
    """

    address: str
    module: str
    inputs: tuple[int, ...]
    shape: str


@dataclass(frozen=True, kw_only=True)
class WeightFacts:
    """The weight of one layer of the compressed model.

    Attributes:
        module: Dotted name of the layer.
        precision: The format of its values, such as "float16", "5-bit codebook", "4-bit grid".
        bits: Bits of one value in that format.
        zeros: Share of its values that are zero, in [0, 1].
        low: Lower end of the histogram.
        high: Upper end of the histogram.
        counts: Non-zero values in each of equally wide bins from `low` to `high`.
        values: The distinct non-zero values, in ascending order, if there are few.
        output_change: How far the outputs of the dense model change if only this layer is
            compressed: norm of the difference over norm of the outputs, on the example inputs;
            None if not measured.
    """

    module: str
    precision: str
    bits: int
    zeros: float
    low: float
    high: float
    counts: tuple[int, ...]
    values: tuple[float, ...] = ()
    output_change: float | None = None
