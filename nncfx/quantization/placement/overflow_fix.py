"""Weights that use half of their integers, for processors whose sums of two products overflow.

x86 processors without VNNI multiply bytes of activations (unsigned) with bytes of weights
(signed) by an instruction that adds two products in 16 bits and saturates there: 2 x 255 x 127 is
twice what fits. With 7 bits of weights, 2 x 255 x 63 fits.
"""

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import torch

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.quantization.placement.plan import PlannedQuantizer, QuantizationPlan
from nncfx.targets import Hardware

__all__ = ["OverflowFix", "byte_sums_saturate", "with_overflow_fix"]

OverflowFix = Literal["enable", "disable", "first_layer_only"]
_CHOICES = ("enable", "disable", "first_layer_only")
_BYTE = 8
_CPUINFO: Final = Path("/proc/cpuinfo")
_X86: Final = ("x86", "x86_64", "amd64", "i386", "i686")
_VNNI: Final = ("avx512_vnni", "avx_vnni")


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
        if one.role == "activation" or one.spec.bits != _BYTE or one.spec.is_float8 or not asked:
            return one
        return replace(one, spec=one.spec.replace(half_range=True))

    return replace(plan, quantizers=tuple(halved(one) for one in plan.quantizers))


def byte_sums_saturate() -> bool:
    """Return whether the CPU at hand adds products of bytes in 16 bits, which overflow.

    It does if it is an x86 of which neither torch (from 2.11 on) nor Linux tells that it has VNNI;
    where nothing is told, yes is the safe answer. Other processors add in 32 bits.
    """
    known = _capabilities()
    if str(known.get("architecture")).lower() not in _X86:
        return False
    return not any(known.get(name, False) for name in _VNNI)


def _capabilities() -> Mapping[str, object]:
    """Return what torch knows of the CPU; of an older torch, what /proc/cpuinfo says.

    Both call instructions by the same names.
    """
    known: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if known:
        return known
    text = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.exists() else ""
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return {"architecture": platform.machine(), **dict.fromkeys(flags, True)}
