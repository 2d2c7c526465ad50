"""What quantization tells of its quantizers, and of the optimizer."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import final

from typing_extensions import override

from nncfx.controllers import Statistics, table


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizerStatistics:
    """One quantizer.

    Attributes:
        name: Operation and port, or operation and `WEIGHT`.
        role: "activation" or "weight".
        bits: Width of its integers.
        mode: Symmetric, asymmetric, or a float8 format.
        scales: How many scales it has.
        is_active: Whether it quantizes already.
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
    """What is quantized.

    Attributes:
        target: The hardware description.
        quantizers: In order of execution.
        float_operations: How many operations stay in float, by kind and reason.
    """

    target: str
    quantizers: tuple[QuantizerStatistics, ...]
    float_operations: Mapping[str, int]

    @override
    def to_str(self) -> str:
        """Return how many quantizers there are of each kind; `quantizers` has them one by one."""
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
    """What a staged schedule asks of the user's optimizer.

    Attributes:
        lr: The learning rate.
        weight_decay: The weight decay.
        batch_multiplier: Batches per optimizer step.
    """

    lr: float
    weight_decay: float
    batch_multiplier: int
