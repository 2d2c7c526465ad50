"""Translate a quantization config for placement and calibration."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from nncfx.algorithms.quantization.config import (
    QuantizationConfig,
    RangeInitializer,
    WeightQuantizers,
)
from nncfx.config import Fault, config_error
from nncfx.config.section import as_in_torch
from nncfx.errors import CompressionError, did_you_mean
from nncfx.graph import NNCFGraph
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.quantization.options import QuantizeOptions, preset_requests, resolved
from nncfx.quantization.placement.placement_options import PlacementOptions, SpecRequest
from nncfx.quantization.placement.plan_model import plan_model
from nncfx.quantization.ranges.range_estimation import RangeRequest
from nncfx.targets import Hardware, hardware_named, target_of_device

_LOGGER = logging.getLogger(__name__)
_AS_QUANTIZE: Final = resolved(QuantizeOptions(), "default", per_tensor=False)
_WIDTHS: Final = range(2, 17)
_WITH_PERCENTILES: Final = ("percentile", "mean_percentile")
_OF_MANUAL: Final = ("type", "bitwidth_per_scope")


def plan_of_config(config: QuantizationConfig, model: NNCFNetwork) -> QuantizationPlan:
    """Return the plan that places the quantizers of `config` in `model`.

    Raises:
        ArgumentError: the target is unknown, or does not support the requested bits.
        GraphError: a scope matches no operation.
        CompressionError: nothing is quantized, or a quantizer that is given bits does not exist.
        ConfigError: the config asks for HAWQ, which is not implemented.
    """
    _check_no_hawq(config)
    target = config.target or target_of_device("ANY")
    options = _options(config, model.nncf.graph, hardware_named(target))
    plan = plan_model(
        model, target, options, config.overflow_fix, lambda made: _manual_bits(config, made)
    )
    if not plan.quantizers:
        raise CompressionError(
            f"quantization finds nothing to work on: {plan.hardware} computes none of the "
            "operations within the scopes in integers. Widen 'target_scopes', or take the item "
            "out of the config."
        )
    _warn_idle_keys(config)
    return plan


def _check_no_hawq(config: QuantizationConfig) -> None:
    if config.precision is not None and config.precision.type == "hawq":
        fault = Fault(
            path="initializer.precision.type",
            problem="'hawq' can be read, but is not implemented: bits are not found by Hessian "
            "traces. Use 'manual' with 'bitwidth_per_scope', or search the bits with nncfx.hago",
        )
        raise config_error([fault], "The quantization item")


def _warn_idle_keys(config: QuantizationConfig) -> None:
    """Warn about keys that have no effect: unused percentiles, and HAWQ's in manual mode."""
    for index, one in enumerate(config.ranges):
        if one.params is not None and one.type not in _WITH_PERCENTILES:
            _LOGGER.warning(
                "initializer.range[%d].params: percentiles do nothing for the type '%s'. Take "
                "them out, or write one of %s.",
                index,
                one.type,
                ", ".join(_WITH_PERCENTILES),
            )
    precision = config.precision
    if precision is None:
        return
    idle = [
        one.name
        for one in dataclasses.fields(precision)
        if one.name not in _OF_MANUAL and getattr(precision, one.name) != one.default
    ]
    if idle:
        _LOGGER.warning(
            "initializer.precision: %s do nothing where bits are given by hand (type 'manual'). "
            "Take them out.",
            ", ".join(idle),
        )


def ranges_of_config(
    config: QuantizationConfig, graph: NNCFGraph
) -> Callable[[PlannedQuantizer], RangeRequest]:
    """Return a function from a quantizer to how its range is found.

    The function raises:
        CompressionError: several entries of `initializer.range` match the quantizer, or none.
    """
    entries = config.ranges
    overrides = [
        (
            role,
            _addresses(graph, [scope]),
            RangeInitializer.from_dict(each["initializer"]["range"]),
        )
        for role, by_scope in (config.scope_overrides or {}).items()
        for scope, each in by_scope.items()
        if "range" in each.get("initializer", {})
    ]

    def range_of(planned: PlannedQuantizer) -> RangeRequest:
        for role, addresses, entry in overrides:
            if role == f"{planned.role}s" and addresses.intersection(planned.operations):
                return _request(entry, planned)
        if not entries:
            return _request(RangeInitializer(), planned)
        fitting = [one for one in entries if _holds_for(one, planned, graph)]
        if len(fitting) != 1:
            raise CompressionError(
                f"{len(fitting)} entries of 'initializer.range' apply to the quantizer "
                f"'{planned.name}', and exactly one must. Give entries scopes, or a "
                "'target_quantizer_group', that do not overlap and leave nothing out."
            )
        return _request(_of_role(fitting[0], planned.role), planned)

    return range_of


def _of_role(entry: RangeInitializer, role: str) -> RangeInitializer:
    """Return `entry`, with "min_max" for weights unless "kl" is set for weights explicitly.

    Relative entropy clips rare values, which are noise in activations but important in weights.
    """
    if entry.type == "kl" and role == "weight" and entry.target_quantizer_group is None:
        return dataclasses.replace(entry, type="min_max")
    return entry


def _request(entry: RangeInitializer, planned: PlannedQuantizer) -> RangeRequest:
    if entry.type is None:  # unlike NNCF's means, clip nothing that training must recover
        is_weight = planned.role == "weight"
        return (
            _AS_QUANTIZE.weight_range_of(planned) if is_weight else _AS_QUANTIZE.activation_range
        )
    if entry.params is None:
        return RangeRequest(method=entry.type)
    params = entry.params
    return RangeRequest(method=entry.type, low=params.min_percentile, high=params.max_percentile)


def _holds_for(entry: RangeInitializer, planned: PlannedQuantizer, graph: NNCFGraph) -> bool:
    group = entry.target_quantizer_group
    if group is not None and group != f"{planned.role}s":
        return False
    inside = entry.target_scopes is None or bool(
        _addresses(graph, entry.target_scopes).intersection(planned.operations)
    )
    return inside and not _addresses(graph, entry.ignored_scopes).intersection(planned.operations)


def _addresses(graph: NNCFGraph, scopes: Iterable[str]) -> set[str]:
    return {one.address for one in graph.select(scopes)}


def _options(config: QuantizationConfig, graph: NNCFGraph, hardware: Hardware) -> PlacementOptions:
    weights, activations = preset_requests(config.preset or "performance", hardware)
    overrides: Mapping[str, Any] = config.scope_overrides or {}
    unified = config.activations.unified_scale_ops if config.activations else None
    return PlacementOptions(
        weights=_asked(config.weights).over(weights),
        activations=_asked(config.activations).over(activations),
        weight_overrides=_overrides(overrides.get("weights", {})),
        activation_overrides=_overrides(overrides.get("activations", {})),
        target_scopes=config.target_scopes,
        ignored_scopes=config.ignored_scopes,
        ignored_weights=_ignored(config.weights, graph),
        ignored_activations=_ignored(config.activations, graph),
        unified=tuple(tuple(group) for group in unified or ()),
        quantize_inputs=config.quantize_inputs,
        quantize_outputs=config.quantize_outputs,
    )


def _asked(section: WeightQuantizers | None) -> SpecRequest:
    if section is None:
        return SpecRequest()
    return SpecRequest(
        bits=section.bits,
        mode=section.mode,
        signed=section.signed,
        per_channel=section.per_channel,
    )


def _overrides(by_scope: Mapping[str, Any]) -> tuple[tuple[str, SpecRequest], ...]:
    return tuple(
        (scope, SpecRequest(**{key: one[key] for key in one if key != "initializer"}))
        for scope, one in by_scope.items()
    )


def _ignored(section: WeightQuantizers | None, graph: NNCFGraph) -> tuple[str, ...]:
    """Return the ignored scopes, and the addresses outside the target scopes."""
    if section is None:
        return ()
    outside: list[str] = []
    if section.target_scopes is not None:
        inside = _addresses(graph, section.target_scopes)
        outside = [address for address in graph.addresses if address not in inside]
    return (*section.ignored_scopes, *outside)


def _manual_bits(config: QuantizationConfig, plan: QuantizationPlan) -> dict[str, int]:
    """Return the bits that `initializer.precision` assigns to quantizers, by name.

    Raises:
        ConfigError: an entry is not a pair of width and name.
        CompressionError: no quantizer has a given name.
    """
    names = {one.name for one in plan.quantizers}
    bits = {}
    entries = (config.precision and config.precision.bitwidth_per_scope) or ()
    faults = [
        Fault(
            path=f"initializer.precision.bitwidth_per_scope[{index}]",
            problem=f"{entry} is not a pair of a width, 2 to 16, and the name of a quantizer, "
            'such as [8, "Net/Linear[fc]/linear_0|WEIGHT"]',
        )
        for index, entry in enumerate(entries)
        if [type(one) for one in entry] != [int, str] or entry[0] not in _WIDTHS
    ]
    if faults:
        raise config_error(faults, "The quantization item")
    for width, asked in entries:
        # NNCF writes a single output without its number
        name = as_in_torch(f"{asked}0" if asked.endswith("|OUTPUT") else asked)
        if name not in names:
            raise CompressionError(
                f"'bitwidth_per_scope' gives {width} bits to '{asked}', and there is no such "
                f"quantizer.{did_you_mean(asked, names)} controller.statistics() names them all."
            )
        bits[name] = width
    return bits
