"""The statistics of quantization, and the optimizer settings of its schedule."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import final

from typing_extensions import override

from nncfx.controllers import Statistics, table


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizerStatistics:
    """Statistics of one quantizer.

    Attributes:
        name: Operation and port, or operation and `WEIGHT`.
        role: "activation" or "weight".
        bits: Width of its integers.
        mode: Symmetric, asymmetric, or a float8 format.
        scales: Number of scales.
        is_active: Whether it is quantizing yet.
    """

    name: str
    role: str
    bits: int
    mode: str
    scales: int
    is_active: bool


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizationStatistics(Statistics):
    """Statistics of all quantizers, and of what stays in float.

    Attributes:
        target: The hardware description.
        quantizers: One entry per quantizer, in order of execution.
        float_operations: Number of operations that stay in float, by kind and reason.
    """

    target: str
    quantizers: tuple[QuantizerStatistics, ...]
    float_operations: Mapping[str, int]

    @override
    def to_str(self) -> str:
        """Return a table of the number of quantizers of each kind."""
        kinds = Counter((one.role, one.bits, one.mode) for one in self.quantizers)
        active = Counter(
            (one.role, one.bits, one.mode) for one in self.quantizers if one.is_active
        )
        header = ["quantizers of", "bits", "mode", "count", "active"]
        rows: list[list[object]] = [[*kind, kinds[kind], active[kind]] for kind in kinds]
        lines = [table(header, rows)]
        lines += [f"in float: {count} x {what}" for what, count in self.float_operations.items()]
        return "\n".join(lines)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The settings of a staged schedule for the user's optimizer.

    Attributes:
        lr: The learning rate.
        weight_decay: The weight decay.
        batch_multiplier: Batches per optimizer step.
    """

    lr: float
    weight_decay: float
    batch_multiplier: int
