"""The config of quantization-aware training, in NNCF's grammar with additions.

`target`, `ranges_freeze_epoch` and the range types `mse` and `kl` are ours.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Self

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.initializer import BatchNormAdaptation
from nncfx.config.option import Limits, option
from nncfx.config.registry import TrainedAlgorithmConfig, register_algorithm_config
from nncfx.config.schema import REFUSED
from nncfx.config.section import (
    ScopeResolver,
    Section,
    resolved_scopes,
    section_faults,
    with_scopes,
)
from nncfx.targets import target_of_device

_POSITIVE = Limits(minimum=1)
_BITS = Limits(minimum=2, maximum=16)
_COUNT = Limits(minimum=0)
_STRINGS: Final = {"type": "array", "items": {"type": "string"}}
_OVERRIDE: Final = {
    "type": "object",
    "properties": {
        "mode": {"enum": ["symmetric", "asymmetric"]},
        "bits": {"type": "integer", "minimum": 2, "maximum": 16},
        "signed": {"type": "boolean"},
        "per_channel": {"type": "boolean"},
        "initializer": {"type": "object"},
    },
    "additionalProperties": False,
    REFUSED: {},
}
_BY_SCOPE: Final = {"type": "object", "additionalProperties": _OVERRIDE}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightQuantizers(Section):
    """How weights are quantized, unless `scope_overrides` says otherwise.

    Source: NNCF 2.19, "Quantization", as for all of this module.
    """

    mode: Literal["symmetric", "asymmetric"] | None = option(
        None, "whether ranges are symmetric about zero"
    )
    bits: int | None = option(None, "the width of the integers, 8 if not given", limits=_BITS)
    signed: bool | None = option(
        None, "whether integers may be negative; determined automatically if not given"
    )
    per_channel: bool | None = option(None, "whether each channel has a range of its own")
    ignored_scopes: tuple[str, ...] = option((), "operations that are not quantized", single=True)
    target_scopes: tuple[str, ...] | None = option(
        None, "the only operations that are quantized", single=True
    )
    logarithm_scale: bool | None = option(
        None, "whether to train the logarithm of a scale instead of the scale"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActivationQuantizers(WeightQuantizers):
    """How activations are quantized, unless `scope_overrides` says otherwise."""

    unified_scale_ops: Any = option(
        None,
        "groups of operations whose quantizers share a scale",
        schema={"type": "array", "items": _STRINGS},
    )

    def with_groups(self, resolve: ScopeResolver) -> Self:
        """Return this section, the item's 'activations', with its scopes resolved."""
        groups = [
            list(resolved_scopes(f"activations.unified_scale_ops[{index}]", group, resolve))
            for index, group in enumerate(self.unified_scale_ops or ())
        ]
        scoped = with_scopes(self, "activations", resolve)
        return replace(scoped, unified_scale_ops=groups or None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RangeParams(Section):
    """The percentiles of a range."""

    min_percentile: float = option(
        0.1, "the lower percentile", limits=Limits(minimum=0, maximum=100)
    )
    max_percentile: float = option(
        99.9, "the upper percentile", limits=Limits(minimum=0, maximum=100)
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield a fault if the percentiles leave no range."""
        if self.min_percentile >= self.max_percentile:
            yield Fault(
                path="min_percentile",
                problem=f"{self.min_percentile} is not below 'max_percentile', which is "
                f"{self.max_percentile}, so nothing lies between. Swap or change them.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RangeInitializer(Section):
    """How ranges are found from data."""

    num_init_samples: int = option(256, "the number of examples", limits=_COUNT)
    type: (
        Literal[
            "mixed_min_max",
            "min_max",
            "mean_min_max",
            "threesigma",
            "percentile",
            "mean_percentile",
            "mse",
            "kl",
        ]
        | None
    ) = option(
        None,
        "the statistic that gives the range; by default mse, and min_max for weights of 8 "
        "bits or more. kl holds for weights only if target_quantizer_group names them; "
        "otherwise they use min_max",
    )
    params: RangeParams | None = option(None, "the percentiles")
    ignored_scopes: tuple[str, ...] = option(
        (), "operations that this does not apply to", single=True
    )
    target_scopes: tuple[str, ...] | None = option(
        None, "the only operations that this applies to", single=True
    )
    target_quantizer_group: Literal["activations", "weights"] | None = option(
        None, "the quantizers that this applies to"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionInitializer(Section):
    """How each layer gets its bits."""

    refused: ClassVar[Mapping[str, str]] = {
        "target_device": ("it belongs at the top level of the config")
    }

    type: Literal["hawq", "manual"] = option(
        "manual",
        "how bits are found; hawq is read, but cannot be applied",
        refused={
            "autoq": ("AutoQ is not implemented. Use 'manual', or search the bits with nncfx.hago")
        },
    )
    bits: tuple[int, ...] = option((2, 4, 8), "the widths to choose from", limits=_POSITIVE)
    num_data_points: int = option(100, "examples for the traces", limits=_POSITIVE)
    iter_number: int = option(200, "iterations of the trace estimate", limits=_COUNT)
    tolerance: float = option(1e-4, "when the estimate has converged", limits=Limits(above=0))
    compression_ratio: float = option(
        1.5,
        "bit operations at 8 bits everywhere, divided by those at the chosen bits",
        limits=_COUNT,
    )
    eval_subset_ratio: float = option(
        1.0, "the fraction of the data that is used", limits=Limits(above=0, maximum=1)
    )
    warmup_iter_number: int = option(20, "iterations before the search", limits=_COUNT)
    bitwidth_per_scope: Any = option(
        None,
        "pairs of a width and the name of a quantizer",
        schema={"type": "array", "items": {"type": "array", "minItems": 2}},
    )
    traces_per_layer_path: str | None = option(None, "a file of traces that were computed before")
    dump_init_precision_data: bool = option(
        default=False, doc="whether to write the chosen bits to a file"
    )
    bitwidth_assignment_mode: Literal["strict", "liberal"] = option(
        "liberal", "whether neighbouring quantizers share their width"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizationInitializer(Section):
    """What is done before quantization-aware training."""

    batchnorm_adaptation: BatchNormAdaptation | None = option(
        None, "adapt the running statistics of batch norms"
    )
    range: tuple[RangeInitializer, ...] = option((), "how ranges are found", single=True)
    precision: PrecisionInitializer | None = option(None, "how bits are found")

    def with_scopes(self, resolve: ScopeResolver) -> Self:
        """Return this section, the item's 'initializer', with the scopes of ranges resolved."""
        ranges = tuple(
            with_scopes(one, f"initializer.range[{index}]", resolve)
            for index, one in enumerate(self.range)
        )
        return replace(self, range=ranges)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagedQuantization(Section):
    """When quantizers start, and how the optimizer changes meanwhile."""

    batch_multiplier: int = option(1, "batches per optimizer step", limits=_POSITIVE)
    activations_quant_start_epoch: int = option(
        1, "the epoch from which activations are quantized", limits=_COUNT
    )
    weights_quant_start_epoch: int = option(
        1, "the epoch from which weights are quantized", limits=_COUNT
    )
    ranges_freeze_epoch: int | None = option(
        None, "the epoch from which ranges are no longer trained", limits=_COUNT
    )
    lr_poly_drop_start_epoch: int | None = option(
        None, "the epoch from which the learning rate falls", limits=_COUNT
    )
    lr_poly_drop_duration_epochs: int = option(
        30, "the number of epochs in which it falls", limits=_COUNT
    )
    disable_wd_start_epoch: int | None = option(
        None, "the epoch from which there is no weight decay", limits=_COUNT
    )
    base_lr: float = option(1e-3, "the learning rate", limits=_COUNT)
    base_wd: float = option(1e-5, "the weight decay", limits=_COUNT)


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizationConfig(TrainedAlgorithmConfig):
    """Train with the rounding of an integer runtime."""

    algorithm: ClassVar[str] = "quantization"
    from_data: ClassVar[tuple[str, str]] = (
        "its ranges",
        (
            "set 'num_init_samples' of 'initializer.range' to 0, to begin with the ranges of "
            "example_inputs"
        ),
    )

    target: str | None = option(
        None,
        "the target whose kernels decide what is quantized: a name of nncfx.targets, or a "
        "JSON file that describes one; by default, target_device of the whole config chooses "
        "it",
    )
    preset: Literal["performance", "mixed"] | None = option(
        None,
        "whether ranges of activations are symmetric (performance, the default) or asymmetric "
        "(mixed)",
    )
    quantize_inputs: bool = option(default=True, doc="whether the model's inputs are quantized")
    quantize_outputs: bool = option(default=False, doc="whether its outputs are quantized")
    overflow_fix: Literal["enable", "disable", "first_layer_only"] | None = option(
        None,
        "whether weights use half of their range, for processors without VNNI or dot "
        "products; by default, NNCF does so, and nncfx only for the target onnxruntime-avx2",
    )
    export_to_onnx_standard_ops: bool = option(
        default=False, doc="whether to export with standard operators; nncfx always does"
    )
    weights: WeightQuantizers | None = option(None, "the quantizers of weights")
    activations: ActivationQuantizers | None = option(None, "the quantizers of activations")
    scope_overrides: Any = option(
        None,
        "other settings for some quantizers: by 'weights' and 'activations', then by scope",
        schema={
            "type": "object",
            "properties": {"weights": _BY_SCOPE, "activations": _BY_SCOPE},
            "additionalProperties": False,
            REFUSED: {},
        },
    )
    initializer: QuantizationInitializer | None = option(None, "what is done before training")
    params: StagedQuantization | None = option(None, "the epochs at which quantizers start")

    @property
    def ranges(self) -> tuple[RangeInitializer, ...]:
        """The initializer's entries that say how ranges are found; empty if there are none."""
        return self.initializer.range if self.initializer else ()

    @property
    def precision(self) -> PrecisionInitializer | None:
        """The initializer's section that says how each layer gets its bits, if any."""
        return self.initializer.precision if self.initializer else None

    @property
    @override
    def depends_on_device(self) -> bool:
        return self.target is None

    @override
    def within(self, device: str, lr_multiplier: float | None) -> Self:
        """Return this config with the multiplier, and the target of `device` if none is set.

        >>> QuantizationConfig().within("GPU", None).target
        'tensorrt'
        """
        scoped = super().within(device, lr_multiplier)
        return scoped if self.target else replace(scoped, target=target_of_device(device))

    @property
    @override
    def adaptation_samples(self) -> int:
        adaptation = self.initializer and self.initializer.batchnorm_adaptation
        return adaptation.num_bn_adaptation_samples if adaptation else 0

    @property
    @override
    def calibration_samples(self) -> int:
        return max(one.num_init_samples for one in self.ranges or (RangeInitializer(),))

    @override
    def with_scopes(self, resolve: ScopeResolver) -> Self:
        """Return this config with the scopes of all sections resolved."""
        scoped = super().with_scopes(resolve)
        return replace(
            scoped,
            weights=scoped.weights and with_scopes(scoped.weights, "weights", resolve),
            activations=scoped.activations and scoped.activations.with_groups(resolve),
            initializer=scoped.initializer and scoped.initializer.with_scopes(resolve),
            scope_overrides=scoped.scope_overrides
            and {
                role: {
                    found: each
                    for scope, each in by_scope.items()
                    if (found := resolve(f"scope_overrides.{role}.{scope}", scope)) is not None
                }
                for role, by_scope in scoped.scope_overrides.items()
            },
        )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield faults of keys that contradict each other."""
        for role, by_scope in (self.scope_overrides or {}).items():
            for scope, override_of in by_scope.items():
                unknown = set(override_of.get("initializer", {})) - {"range"}
                if unknown:
                    yield Fault(
                        path=f"scope_overrides.{role}.{scope}.initializer.{min(unknown)}",
                        problem="an initializer of a scope has 'range' only",
                    )
                if "range" in override_of.get("initializer", {}):
                    place = f"scope_overrides.{role}.{scope}.initializer.range"
                    found = section_faults(RangeInitializer, override_of["initializer"]["range"])
                    yield from (fault.below(place) for fault in found)
