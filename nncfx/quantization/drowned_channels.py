"""Keep the inputs of instance norms in float where one scale for all channels is too coarse."""

import logging
import math
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.preparation.layer_chains import readers
from nncfx.quantization.ranges.observation import Note, probing, run_batches
from nncfx.tracing import ExampleInputs, PostSite, Site

_ENOUGH_DB: Final = 30.0
"""SQNR after the norm; with channels of equal range, 8 bits leave about 40 dB."""
_NORM: Final = "instance_norm"
_LOGGER = logging.getLogger(__name__)


def without_drowned_channels(
    model: NNCFNetwork, plan: QuantizationPlan, batch: ExampleInputs
) -> QuantizationPlan:
    """Return `plan` without the quantizers of instance norm inputs that are too coarse.

    A norm divides each channel by its own deviation, so training does not constrain the range of
    its input channels. A channel with a hundredth of the largest range has two or three steps of
    the shared grid, and the norm scales the error up with the channel. These tensors stay in
    float and are logged. `model` has no quantizers of `plan` yet, and gets none here.
    """
    results = {one: _of_norms(model, one) for one in plan.activations}
    read = {one: address for one, address in results.items() if address}
    if not read:
        return plan
    found: dict[PlannedQuantizer, float] = {}

    def noting(one: PlannedQuantizer) -> Note:
        def note(x: Tensor) -> None:
            found[one] = min(_normalised_db(x.detach(), one.spec), found.get(one, math.inf))

        return note

    notes: dict[Site, Note] = {PostSite(address): noting(one) for one, address in read.items()}
    with probing(model, notes):
        run_batches(model, [batch])
    harmful = {one: db for one, db in found.items() if db < _ENOUGH_DB}
    if harmful:
        worst = min(harmful, key=lambda one: harmful[one])
        _LOGGER.warning(
            "%d of %d results that norms of each channel read stay in float: %d bits for all "
            "channels would leave %.1f dB of signal over error after %s. preset='fast' "
            "quantizes them anyway.",
            *(len(harmful), len(read), worst.spec.bits, harmful[worst], read[worst]),
        )
    return replace(plan, quantizers=tuple(one for one in plan.quantizers if one not in harmful))


def _of_norms(model: NNCFNetwork, quantizer: PlannedQuantizer) -> str:
    """Return the one operation whose result `quantizer` rounds if only norms read it, else ""."""
    (address, _), *more = quantizer.tensors
    if quantizer.sites != (PostSite(address),):
        return ""
    functions = {one and one.function for one in readers(model.nncf.graph, address)}
    return "" if more or functions != {_NORM} else address


def _normalised_db(x: Tensor, spec: QuantizerSpec) -> float:
    """Return the SQNR in dB at the output of a norm that normalises each channel of `x`.

    Args:
        x: n x c x ..., the input of the norm.
        spec: Its grid, assumed to cover the range of `x`.
    """
    low, high = (float(one) for one in torch.aminmax(x.float()))
    steps = spec.quant_max - spec.quant_min
    width = high - low if spec.mode == "asymmetric" else 2 * max(-low, high)
    noise = (width / steps) ** 2 / 12  # variance of a uniform rounding error
    channels = x.flatten(2)
    varies = channels.amax(2) > channels.amin(2)  # constants stay constant
    signal = channels.double().var(2, correction=0)[varies]
    error = float((noise / (signal + noise)).sum())
    return 10 * math.log10(len(signal) / error) if error else math.inf
