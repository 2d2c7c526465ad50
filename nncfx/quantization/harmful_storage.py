"""Keep weights in float that a target would only store as integers, at a loss of accuracy."""

import logging
from dataclasses import replace
from typing import Final

from nncfx.network import NNCFNetwork
from nncfx.operators import operation_kind
from nncfx.quantization.grid.plan import FloatOperation, QuantizationPlan
from nncfx.quantization.placement.insertions import insert_quantizers, place_quantizers
from nncfx.quantization.ranges.calibration import RangeOf, set_weight_ranges
from nncfx.quantization.signal_error import layer_errors
from nncfx.tracing import ExampleInputs

_ENOUGH_DB: Final = 20.0
"""SQNR at the output of the layer at which a hundredth of the energy is error."""
_BYTE: Final = 8
_LOGGER = logging.getLogger(__name__)


def without_harmful_storage(
    model: NNCFNetwork, plan: QuantizationPlan, range_of: RangeOf, batch: ExampleInputs
) -> QuantizationPlan:
    """Return `plan` without the recurrent layers that lose accuracy in integers, and log them.

    Targets compute recurrent layers in float: integers make their weights smaller but nothing
    faster, and errors accumulate in the state. Weights of fewer than 8 bits were requested and
    stay quantized. If nothing else is quantized, `plan` is returned unchanged. `model` has no
    quantizers of `plan` yet, and none are left in it.
    """
    recurrent = {
        one.address
        for one in model.nncf.graph.operations
        if operation_kind(one.function) == "recurrent"
    }
    stored = tuple(
        one
        for one in plan.weights
        if recurrent.issuperset(one.operations) and one.spec.bits >= _BYTE
    )
    if not stored:
        return plan
    hooks = place_quantizers(model, replace(plan, quantizers=stored))
    set_weight_ranges(model, hooks, range_of)
    insert_quantizers(model, hooks)
    try:
        found = layer_errors(model, batch)
    finally:
        model.nncf.remove(plan.algorithm)
    harmed = {address: db for address, db in found.items() if db < _ENOUGH_DB}
    kept = tuple(one for one in plan.quantizers if not harmed.keys() & set(one.operations))
    if not kept:
        return plan
    bits = {address: one.spec.bits for one in stored for address in one.operations}
    for address, db in harmed.items():
        _LOGGER.warning(
            "%s stays in float: %d bits would only make its weights smaller, %s computes it in "
            "float, and leave %.1f dB of signal over error. preset='fast' stores it anyway.",
            *(address, bits[address], plan.hardware, db),
        )
    reason = "its weights would only be stored in integers, and are harmed by them"
    left = {address: FloatOperation(address, "recurrent", reason) for address in harmed}
    left |= {one.address: one for one in plan.float_operations}
    order = [one.address for one in model.nncf.graph.operations if one.address in left]
    return replace(plan, quantizers=kept, float_operations=tuple(left[one] for one in order))
