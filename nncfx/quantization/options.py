"""Presets and options of post-training quantization."""

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from nncfx.errors import ArgumentError, require_known, require_truths
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.quantization.grid.spec import MOST_BITS
from nncfx.quantization.placement.overflow_fix import OverflowFix
from nncfx.quantization.placement.placement_options import PlacementOptions, SpecRequest
from nncfx.quantization.ranges.range_estimation import RangeRequest
from nncfx.quantization.rounding.layer_rounding import ROUNDINGS
from nncfx.targets import Hardware

Preset = Literal["fast", "default", "thorough", "mixed", "performance"]
_BYTE: Final = 8

Rounding = Literal["nearest", "gptq", "adaptive"]


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """Options of `quantize` that override its preset.

    `None` leaves a choice to the preset.

    Attributes:
        placement: Requests for single operations; its bits and modes override the preset.
        activation_range: How ranges of activations are found; "mse" in all presets.
        weight_range: How ranges of weights are found. By default "min_max" for weights of 8 bits
            or more, and "mse" for narrower weights except in the preset "fast".
        equalize: Balance the ranges of consecutive layers first (cross-layer equalisation), which
            folds batch norms. By default where weights have one scale per tensor, except in
            "fast".
        smooth: Move outliers of activations into the weights first (SmoothQuant).
        rounding: "nearest", or "gptq" or "adaptive", which fit the rounding of weights to data.
            By default weights of fewer than 8 bits have "gptq" in the preset "default" and
            "adaptive" in "thorough"; all others have "nearest".
        correct_biases: Remove the mean error of each layer's output with its bias or with that of
            the batch norm after it. By default true except in "fast".
        overflow_fix: "enable": weights use 7 of their 8 bits, so x86 processors without VNNI
            compute what is simulated; "first_layer_only": only those of the first layer do; None:
            "enable" where the target has such sums (`onnxruntime-avx2`), else "disable".

    Raises:
        ArgumentError: the rounding is unknown, `placement` is no `PlacementOptions`, or a range
            is no `RangeRequest`.
    """

    placement: PlacementOptions = field(default_factory=PlacementOptions)
    activation_range: RangeRequest | None = None
    weight_range: RangeRequest | None = None
    equalize: bool | None = None
    smooth: bool = False
    rounding: Rounding | None = None
    correct_biases: bool | None = None
    overflow_fix: OverflowFix | None = None

    def __post_init__(self) -> None:
        """Check values that would otherwise fail only after calibration."""
        require_truths(self)
        if not isinstance(self.placement, PlacementOptions):
            raise ArgumentError(
                f"placement is {self.placement!r}. Write it as PlacementOptions(...), of "
                "nncfx.quantization."
            )
        if self.rounding is not None:
            require_known("rounding", self.rounding, ("nearest", *ROUNDINGS))
        for name in ("activation_range", "weight_range"):
            asked = getattr(self, name)
            if asked is not None and not isinstance(asked, RangeRequest):
                method = asked if isinstance(asked, str) else "percentile"
                right = RangeRequest(method=method)  # type: ignore[arg-type]  # it checks the name
                raise ArgumentError(
                    f"{name} is {asked!r}. Write it as RangeRequest(method={right.method!r}), of "
                    "nncfx.quantization."
                )


@dataclass(frozen=True, kw_only=True)
class Methods:
    """The options with all defaults of the preset filled in.

    Attributes:
        activation_range: How ranges of activations are found.
        weight_range: How ranges of weights of 8 bits or more are found.
        narrow_range: How ranges of narrower weights are found.
        equalize: Whether layers are equalised.
        smooth: Whether outliers of activations are moved into weights.
        rounding: How weights of at most `rounded_bits` bits are rounded.
        rounded_bits: All others are rounded to nearest.
        correct_biases: Whether biases are corrected.
        asked: Names of options that the user set; a warning follows if one has no effect.
    """

    activation_range: RangeRequest
    weight_range: RangeRequest
    narrow_range: RangeRequest
    equalize: bool
    smooth: bool
    rounding: Rounding
    rounded_bits: int
    correct_biases: bool
    asked: frozenset[str]

    @property
    def may_see_data_again(self) -> bool:
        """Whether batches may be read more than once."""
        return self.smooth or self.correct_biases or self.rounding != "nearest"

    def weight_range_of(self, planned: PlannedQuantizer) -> RangeRequest:
        """Return how the range of a weight is found."""
        return self.narrow_range if planned.spec.bits < _BYTE else self.weight_range

    def rounding_for(self, plan: QuantizationPlan) -> Literal["gptq", "adaptive"] | None:
        """Return the method that rounds weights of `plan`, or None if all round to nearest."""
        is_any = any(one.spec.bits <= self.rounded_bits for one in plan.weights)
        return self.rounding if is_any and self.rounding != "nearest" else None


def resolved(options: QuantizeOptions, preset: Preset, *, per_tensor: bool) -> Methods:
    """Return `options` with defaults filled in from `preset`.

    The defaults depend on whether weights have one scale per tensor (`per_tensor`).
    """
    is_fast = preset == "fast"
    narrow: Rounding = {"fast": "nearest", "thorough": "adaptive"}.get(preset, "gptq")  # type: ignore[assignment]  # literals of it
    least_squares, all_seen = RangeRequest(method="mse"), RangeRequest(method="min_max")
    weight_range = options.weight_range or all_seen
    asked = {name for name in ("rounding", "correct_biases", "equalize") if getattr(options, name)}
    return Methods(
        activation_range=options.activation_range or least_squares,
        weight_range=weight_range,
        narrow_range=options.weight_range or (all_seen if is_fast else least_squares),
        equalize=_chosen(options.equalize, default=per_tensor and not is_fast),
        smooth=options.smooth,
        rounding=options.rounding or narrow,
        rounded_bits=MOST_BITS if options.rounding else _BYTE - 1,
        correct_biases=_chosen(options.correct_biases, default=not is_fast),
        asked=frozenset(asked),
    )


def _chosen(asked: bool | None, *, default: bool) -> bool:
    return default if asked is None else asked


def preset_requests(preset: Preset, hardware: Hardware) -> tuple[SpecRequest, SpecRequest]:
    """Return the requests of `preset` for weights and for activations on `hardware`.

    Raises:
        ArgumentError: the preset is unknown.
    """
    require_known("preset", preset, get_args(Preset))
    is_symmetric = preset == "performance" or hardware.symmetric_activations
    activations = SpecRequest(mode="symmetric" if is_symmetric else "asymmetric")
    return SpecRequest(mode="symmetric"), activations
