"""What a placement decides: data to print, to test and to turn into insertions."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.quantization.grid.spec import Mode, QuantizerSpec
from nncfx.tracing import Site, WeightSite

__all__ = [
    "FloatOperation",
    "PlacementOptions",
    "PlannedQuantizer",
    "QuantizationPlan",
    "SpecRequest",
    "Tensor",
]

Tensor = tuple[str, int]
"""An output of an operation, or an input of the model: address and port."""


@dataclass(frozen=True, kw_only=True)
class SpecRequest:
    """What is asked of quantizers; what is None is left to the hardware and to the data.

    Attributes:
        bits: Width of the integers; at most that of the hardware.
        mode: "symmetric" or "asymmetric".
        signed: Whether the integers may be negative.
        per_channel: Whether each output channel has a scale of its own; weights only.
    """

    bits: int | None = None
    mode: Mode | None = None
    signed: bool | None = None
    per_channel: bool | None = None

    def __post_init__(self) -> None:
        if self.bits is not None and type(self.bits) is not int:
            raise ArgumentError(
                f"bits is {self.bits!r}; it is a whole number, at least 2. Write 8, or nothing.",
            )

    def over(self, other: "SpecRequest") -> "SpecRequest":
        """Return this request, with what it leaves open taken from `other`."""
        mine = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **mine)


@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """What a user may say about placement.

    Scopes are addresses, scopes, `{function}<name>` or `{re}` patterns, as `graph.select` takes
    them.

    Attributes:
        activations: Asked of all quantizers of activations.
        weights: Asked of all quantizers of weights.
        activation_overrides: By scope, asked of the inputs of the operations there.
        weight_overrides: By scope, asked of their weights.
        target_scopes: The only operations to quantize; None for all.
        ignored_scopes: Operations that stay in float.
        ignored_activations: Operations whose inputs stay in float.
        ignored_weights: Operations whose weights stay in float.
        unified: Groups of scopes; the inputs of all operations of a group share one scale.
        quantize_inputs: Whether the model's inputs are quantized.
        quantize_outputs: Whether the model's outputs are quantized.
    """

    activations: SpecRequest = field(default_factory=SpecRequest)
    weights: SpecRequest = field(default_factory=SpecRequest)
    activation_overrides: tuple[tuple[str, SpecRequest], ...] = ()
    weight_overrides: tuple[tuple[str, SpecRequest], ...] = ()
    target_scopes: tuple[str, ...] | None = None
    ignored_scopes: tuple[str, ...] = ()
    ignored_activations: tuple[str, ...] = ()
    ignored_weights: tuple[str, ...] = ()
    unified: tuple[tuple[str, ...], ...] = ()
    quantize_inputs: bool = True
    quantize_outputs: bool = False


@dataclass(frozen=True, kw_only=True)
class PlannedQuantizer:
    """One quantizer: a weight's, or that of one tensor or of several that share a scale.

    Attributes:
        name: NNCF's identifier: `<address>|OUTPUT0`, `<address>|INPUT0` or `<address>|WEIGHT`.
        role: What it quantizes.
        spec: How; the sign of a symmetric activation is settled by data if `is_sign_open`.
        sites: Where its hook stands.
        tensors: The activations it quantizes; none for a weight.
        operations: Addresses of the operations that ask for it.
        is_sign_open: Whether unsigned integers are taken if the data are never negative.
        scales: How many scales it has, where that is not the length of a parameter's axis.
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
    """Where quantizers go.

    Attributes:
        hardware: The name of the target.
        quantizers: In execution order, an operation's weight after its inputs.
        float_operations: What stays in float and why, in execution order.
    """

    hardware: str
    quantizers: tuple[PlannedQuantizer, ...]
    float_operations: tuple[FloatOperation, ...]

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
