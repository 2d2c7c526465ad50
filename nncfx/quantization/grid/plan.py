"""The plan of a quantization: which tensors are quantized, how, and for which target."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from typing_extensions import override

from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.targets import Target
from nncfx.tracing import Site, WeightSite

Tensor = tuple[str, int]
"""An output of an operation, or an input of the model: address and port."""


@dataclass(frozen=True, kw_only=True)
class PlannedQuantizer:
    """One quantizer of a weight, or of one or more activations that share a scale.

    Attributes:
        name: NNCF's identifier: `<address>|OUTPUT0`, `<address>|INPUT0` or `<address>|WEIGHT`.
        role: What it quantizes.
        spec: How; if `is_sign_open`, the data decide the sign of a symmetric activation.
        sites: Where its hook is inserted.
        tensors: The activations it quantizes; empty for a weight.
        operations: Addresses of the operations that require it.
        is_sign_open: Whether to use unsigned integers if the data are never negative.
        scales: Number of scales, if it is not the length of a parameter's axis.
    """

    name: str
    role: Literal["activation", "weight"]
    spec: QuantizerSpec
    sites: tuple[Site, ...]
    tensors: tuple[Tensor, ...] = ()
    operations: tuple[str, ...] = ()
    is_sign_open: bool = False
    scales: int | None = None

    @property
    def parameter(self) -> str:
        """The dotted name of the weight; "" for an activation and for a computed weight."""
        first = self.sites[0]
        return str(first) if isinstance(first, WeightSite) else ""


@dataclass(frozen=True)
class FloatOperation:
    """An operation that stays in float, and why."""

    address: str
    kind: str
    reason: str


@dataclass(frozen=True)
class QuantizationPlan:
    """All quantizers of a model, and the operations that stay in float.

    Attributes:
        hardware: The name of the target.
        quantizers: In execution order, an operation's weight after its inputs.
        float_operations: What stays in float and why, in execution order.
        target: The target that the model is exported for; None if no target was named, as with
            weight-only quantization, or if the `Hardware` belongs to no target.
        algorithm: The algorithm's name on the insertions.
        saturating: How many layers saturate on the CPU on which the plan was made; it is not
            saved to files.
    """

    hardware: str
    quantizers: tuple[PlannedQuantizer, ...]
    float_operations: tuple[FloatOperation, ...] = ()
    target: Target | None = None
    algorithm: str = "quantization"
    saturating: int = field(default=0, compare=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the plan itself: it never changes, and each quantizer refers to it."""
        return self

    @property
    def activations(self) -> tuple[PlannedQuantizer, ...]:
        """The quantizers of activations."""
        return tuple(one for one in self.quantizers if one.role == "activation")

    @property
    def weights(self) -> tuple[PlannedQuantizer, ...]:
        """The quantizers of weights."""
        return tuple(one for one in self.quantizers if one.role == "weight")

    @override
    def __str__(self) -> str:
        counts = f"{len(self.activations)} activations and {len(self.weights)} weights"
        lines = [f"{counts} are quantized for {self.hardware}"]
        lines += [
            f"  {one.name}: {one.spec.dtype} {one.spec.mode}, {one.spec.bits} bits"
            + (
                f", one scale per index of axis {one.spec.axis}"
                if one.spec.axis is not None
                else ""
            )
            for one in self.quantizers
        ]
        if self.float_operations:
            lines.append(f"{len(self.float_operations)} operations stay in float")
            reasons = Counter((one.kind, one.reason) for one in self.float_operations)
            lines += [f"  {n} x {kind}: {reason}" for (kind, reason), n in reasons.items()]
        return "\n".join(lines)
