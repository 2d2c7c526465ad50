"""Weights that use half of their integers, for processors whose sums of two products overflow.

x86 processors without VNNI multiply bytes of activations (unsigned) with bytes of weights
(signed) by an instruction that adds two products in 16 bits and saturates there: 2 x 255 x 127 is
twice what fits. With 7 bits of weights, 2 x 255 x 63 fits.
"""

from dataclasses import replace
from typing import Literal

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.targets import Hardware

__all__ = ["OverflowFix", "with_overflow_fix"]

OverflowFix = Literal["enable", "disable", "first_layer_only"]
_CHOICES = ("enable", "disable", "first_layer_only")
_BYTE = 8


def with_overflow_fix(
    plan: QuantizationPlan, fix: OverflowFix | None, hardware: Hardware
) -> QuantizationPlan:
    """Return `plan` with 7 bits instead of 8 for all weights, or for the first, or for none.

    Without a `fix` the hardware decides. Weights of fewer bits are as they were: their sums fit.

    Raises:
        ArgumentError: there is no such fix.

    Source: NNCF, `overflow_fix`.
    """
    if fix is None:
        fix = "enable" if hardware.saturating_sums else "disable"
    if fix not in _CHOICES:
        raise ArgumentError(
            f"overflow_fix is '{fix}'; it is one of {', '.join(_CHOICES)}."
            f"{did_you_mean(str(fix), _CHOICES)}",
        )
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
