"""Restrict weights to 7 bits for processors whose sums of two products overflow.

x86 processors without VNNI multiply unsigned bytes of activations with signed bytes of weights
by an instruction that adds two products in 16 bits and saturates: 2 x 255 x 127 is twice the
maximum. With weights of 7 bits, 2 x 255 x 63 fits.
"""

import logging
from dataclasses import replace
from typing import Literal, get_args

from nncfx.errors import require_known
from nncfx.graph import NNCFGraph
from nncfx.operators import CONTRACTIONS, operation_kind
from nncfx.processors import byte_sums_saturate
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.targets import Hardware

_LOGGER = logging.getLogger(__name__)
OverflowFix = Literal["enable", "disable", "first_layer_only"]
_BYTE = 8


def with_overflow_fix(
    plan: QuantizationPlan, fix: OverflowFix | None, hardware: Hardware
) -> QuantizationPlan:
    """Return `plan` with 7 instead of 8 bits for all weights, only the first one, or none.

    If `fix` is None, the hardware decides. Weights of fewer bits do not change: their sums fit.

    Raises:
        ArgumentError: the fix is unknown.

    Source: NNCF, `overflow_fix`.
    """
    if fix is None:
        fix = "enable" if hardware.saturating_sums else "disable"
    require_known("overflow_fix", fix, get_args(OverflowFix))
    first = next((one.name for one in plan.weights), None)

    def halved(one: PlannedQuantizer) -> PlannedQuantizer:
        asked = fix == "enable" or (fix == "first_layer_only" and one.name == first)
        if (
            one.role == "activation"
            or one.spec.bits != _BYTE
            or not one.spec.is_integer
            or not asked
        ):
            return one
        return replace(one, spec=one.spec.replace(half_range=True))

    return replace(plan, quantizers=tuple(halved(one) for one in plan.quantizers))


def with_saturation(plan: QuantizationPlan, graph: NNCFGraph) -> QuantizationPlan:
    """Return `plan` with the number of layers whose sums saturate on this CPU.

    These are the layers with quantized activations and weights of 8 bits. There are none if the
    plan has no target, or a target that does not run on saturating CPUs. `graph` is the graph
    that the plan was made for.
    """
    target = plan.target
    if target is None or not target.saturation_mend or not byte_sums_saturate():
        return plan
    read = {address for one in plan.activations for address in one.operations}
    wide = {
        address
        for one in plan.weights
        if one.spec.bits == _BYTE and one.spec.signed and not one.spec.half_range
        for address in one.operations
    }
    layers = sum(
        one.address in read & wide and operation_kind(one.function) in CONTRACTIONS
        for one in graph.operations
    )
    return replace(plan, saturating=layers)


def warn_saturation(layers: int, runtime: str, product: str, fix: str) -> None:
    """Warn if `runtime` computes layers wrongly on this CPU.

    Args:
        layers: Number of such layers; nothing is logged if it is 0.
        runtime: Name of the runtime.
        product: What it runs, such as a file or a program.
        fix: What to do about it.
    """
    if layers:
        _LOGGER.warning(
            "This CPU has no VNNI: %s adds products of bytes in 16 bits here, too few for the "
            "sums of %d layers with 8 bits of weights; on other CPUs the %s is exact. %s",
            runtime,
            layers,
            product,
            fix,
        )
