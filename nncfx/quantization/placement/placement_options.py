"""User options for the placement and the grids of quantizers."""

from dataclasses import dataclass, field, replace

from nncfx.errors import ArgumentError, require_truths
from nncfx.quantization.grid.spec import Mode


@dataclass(frozen=True, kw_only=True)
class SpecRequest:
    """Requested properties of quantizers; the hardware and the data decide what is None.

    Attributes:
        bits: Width of the integers; at most that of the hardware.
        mode: "symmetric" or "asymmetric".
        signed: Whether the integers can be negative.
        per_channel: Whether each output channel has its own scale; weights only.
    """

    bits: int | None = None
    mode: Mode | None = None
    signed: bool | None = None
    per_channel: bool | None = None

    def __post_init__(self) -> None:
        require_truths(self)
        if self.bits is not None and type(self.bits) is not int:
            raise ArgumentError(
                f"bits is {self.bits!r}; it is a whole number, at least 2. Write 8, or nothing; "
                "quantize_mixed gives each weight its own."
            )

    def over(self, other: "SpecRequest") -> "SpecRequest":
        """Return this request with its None values taken from `other`."""
        mine = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **mine)


@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """Options of placement.

    Scopes are addresses, scopes, `{function}<name>` or `{re}` patterns, as in `graph.select`.

    Attributes:
        activations: Request for all quantizers of activations.
        weights: Request for all quantizers of weights.
        activation_overrides: Requests for the inputs of operations, by scope; later ones override
            earlier ones.
        weight_overrides: Requests for the weights of operations, by scope, likewise.
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

    def __post_init__(self) -> None:
        require_truths(self)
