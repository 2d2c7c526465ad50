"""Plan the quantizers of a wrapped model for a target."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from nncfx.network import NNCFNetwork
from nncfx.operators import CONTRACTIONS
from nncfx.quantization.grid.plan import QuantizationPlan
from nncfx.quantization.placement.changed_buffers import changed_buffers
from nncfx.quantization.placement.overflow_fix import (
    OverflowFix,
    warn_saturation,
    with_overflow_fix,
    with_saturation,
)
from nncfx.quantization.placement.placement_options import PlacementOptions
from nncfx.quantization.placement.plan_quantizers import plan_quantizers
from nncfx.targets import Hardware, Target, hardware_named, target_with

_LOGGER = logging.getLogger(__name__)
_LOGGED: Final = CONTRACTIONS | {"attention", "recurrent"}
"""The kinds that take most of the time; a warning is logged if one stays in float."""


def plan_model(
    model: NNCFNetwork,
    target: str | Target | Hardware,
    options: PlacementOptions,
    overflow_fix: OverflowFix | None = None,
    bits_of: Callable[[QuantizationPlan], Mapping[str, int]] = lambda _: {},
) -> QuantizationPlan:
    """Return the quantizers of `model` for `target`.

    Args:
        model: The wrapped model.
        target: As in `quantize`.
        options: Options of placement.
        overflow_fix: As in `with_overflow_fix`.
        bits_of: Returns widths by name of the quantizers that differ from `options`.

    Raises:
        ArgumentError: the target is unknown, or supports fewer bits than requested.
        GraphError: a scope matches no operation.
    """
    hardware = hardware_named(target)
    graph, changed = model.nncf.graph, changed_buffers(model)
    plan = plan_quantizers(graph, hardware, options, changed=changed)
    bits = bits_of(plan)
    quantizers = tuple(
        replace(one, spec=one.spec.replace(bits=bits.get(one.name, one.spec.bits)))
        for one in plan.quantizers
    )
    plan = replace(plan, quantizers=quantizers, target=target_with(target))
    return with_saturation(with_overflow_fix(plan, overflow_fix, hardware), graph)


def warn_of_plan(plan: QuantizationPlan) -> None:
    """Warn of layers that stay in float, and of those that the target computes wrongly here.

    Only products, attention and recurrent layers are logged, unless scopes exclude them. Call
    this before calibration and training, since the grids may have to change.
    """
    by_reason: dict[str, list[str]] = {}
    for one in plan.float_operations:
        if one.kind in _LOGGED and "scopes" not in one.reason:
            by_reason.setdefault(one.reason, []).append(one.address)
    for reason, places in by_reason.items():
        if len(places) == 1:
            _LOGGER.warning("%s stays in float: %s", places[0], reason)
        else:  # one line, not one for each block of a transformer
            told = (len(places), places[0], places[-1], reason)
            _LOGGER.warning("%d operations stay in float, from '%s' to '%s': %s", *told)
    if plan.target is not None:
        fix = plan.target.saturation_mend
        warn_saturation(plan.saturating, plan.target.name, "exported file", fix)
