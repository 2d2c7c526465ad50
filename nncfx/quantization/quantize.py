"""Post-training quantization in one call."""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import torch
from torch import nn

from nncfx.controllers.base.unread_weights import warn_unread_weights
from nncfx.errors import ArgumentError, CompressionError, TracingError, did_you_mean
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.operators import CONTRACTIONS
from nncfx.quantization.placement.changed_buffers import changed_buffers
from nncfx.quantization.placement.insertions import (
    ALGORITHM,
    insertions_of,
    place_quantizers,
)
from nncfx.quantization.placement.overflow_fix import OverflowFix, with_overflow_fix
from nncfx.quantization.placement.plan import PlacementOptions, QuantizationPlan, SpecRequest
from nncfx.quantization.placement.plan_quantizers import plan_quantizers
from nncfx.quantization.preparation.batch_norm_folding import fold_batch_norms
from nncfx.quantization.preparation.bias_correction import correct_biases
from nncfx.quantization.preparation.equalization import equalize_layers
from nncfx.quantization.preparation.smooth_quant import smooth_layers
from nncfx.quantization.ranges.calibration import calibrate, calibration_inputs, set_weight_ranges
from nncfx.quantization.ranges.range_estimation import RangeRequest
from nncfx.quantization.rounding.layer_rounding import ROUNDINGS, round_weights
from nncfx.targets import Hardware, Target, hardware_named
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.model_copy import own_model

__all__ = ["QuantizeOptions", "preset_requests", "quantize"]

Preset = Literal["performance", "mixed"]

_LOGGER = logging.getLogger(__name__)
_LOGGED: Final = CONTRACTIONS | {"attention", "recurrent"}
"""The kinds that take most of the time: that one of them stays in float is told."""


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """What `quantize` does beside placing quantizers and finding their ranges.

    Attributes:
        placement: What is said about single operations; its bits and modes go before the preset.
        activation_range: How ranges of activations are found.
        weight_range: How ranges of weights are found.
        equalize: Balance the ranges of consecutive layers first (cross-layer equalisation). Folds
            batch norms.
        smooth: Move outliers of activations into the weights first (SmoothQuant).
        rounding: "nearest", or a rounding of weights that is fitted to data: "gptq" or "adaptive".
        correct_biases: Remove the mean error of each layer's output, by its bias or by that of
            the batch norm behind it.
        overflow_fix: "enable": weights use 7 of their 8 bits, so that x86 processors without VNNI
            compute what is simulated; "first_layer_only": those of the first layer do; None:
            "enable" where the target has such sums (`onnxruntime-avx2`), else "disable".

    Raises:
        ArgumentError: there is no such rounding, or a range is no request.
    """

    placement: PlacementOptions = field(default_factory=PlacementOptions)
    activation_range: RangeRequest = field(default_factory=lambda: RangeRequest(method="mse"))
    weight_range: RangeRequest = field(default_factory=lambda: RangeRequest(method="min_max"))
    equalize: bool = False
    smooth: bool = False
    rounding: Literal["nearest", "gptq", "adaptive"] = "nearest"
    correct_biases: bool = False
    overflow_fix: OverflowFix | None = None

    def __post_init__(self) -> None:
        """Refuse now what would come out behind the calibration."""
        known = ("nearest", *ROUNDINGS)
        if self.rounding not in known:
            raise ArgumentError(
                f"There is no rounding '{self.rounding}'; known are {', '.join(known)}."
                f"{did_you_mean(self.rounding, known)}",
            )
        for name in ("activation_range", "weight_range"):
            asked = getattr(self, name)
            if not isinstance(asked, RangeRequest):
                raise ArgumentError(
                    f"{name} is {asked!r}. Write it as RangeRequest(method='percentile'), of "
                    "nncfx.quantization.",
                )


def quantize(  # noqa: PLR0913 (keyword-only, the front door)
    model: nn.Module,
    calibration_batches: Iterable[Any],
    *,
    target: str | Target | Hardware = "onnxruntime",
    preset: Preset = "mixed",
    weight_bits: int | None = None,
    activation_bits: int | None = None,
    ignored_scopes: Sequence[str] = (),
    samples: int = 300,
    options: QuantizeOptions | None = None,
    inplace: bool = False,
) -> NNCFNetwork:
    """Return a copy of `model`, wrapped, with calibrated quantizers on activations and weights.

    It computes in float what the target computes in integers: `nncfx.export_onnx` writes the
    integers. Convolutions, products, attention and recurrent layers that have to stay in float
    are logged as warnings, with the reason; `plan_quantizers` tells about all operations.

    Args:
        model: A trained model, wrapped or not; quantized in evaluation mode. It stays as it is
            but for `inplace`. The copy of a model that a controller handles keeps its masks where
            they are, and is no longer that controller's.
        calibration_batches: Any iterable, such as a loader. A batch is a tensor, a mapping of
            keyword inputs, a tuple of all positional inputs, or a pair of one of these and labels;
            what comes behind the inputs is not used. Batches are read until `samples` examples
            have come.
        target: The name of a target, a JSON file that describes one, a `Target`, or a `Hardware`.
        preset: "mixed": symmetric weights and asymmetric activations; "performance": both
            symmetric. A target that only has symmetric activations gets those.
        weight_bits: Width of weights; that of the target if None.
        activation_bits: Width of activations; that of the target if None.
        ignored_scopes: Addresses, scopes, `{function}<name>` or `{re}` patterns of operations that
            stay in float.
        samples: How many examples are seen.
        options: Further methods and single overrides.
        inplace: Quantize and return `model` itself: no memory for a copy, and its controller goes
            on with it.

    Raises:
        ArgumentError: there are no batches, or one is of an unknown form; no target has that name;
            more bits are asked for than it has; the model is quantized already, or cannot be
            copied.
        GraphError: a scope matches no operation.
        CompressionError: nothing can be quantized, or an activation is NaN or infinite.
        TracingError: the model cannot be traced.

    Whatever is raised, no quantizer is left in the model, and it is wrapped only if it was; what
    `options` change of weights is not taken back where `inplace` is true.

    >>> import torch, nncfx
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> quantized = quantize(model, [torch.randn(16, 4)])
    >>> len(quantized.nncf.hooks)
    4
    """
    options = options or QuantizeOptions()
    _check(model, calibration_batches, target, ignored_scopes, options)
    hardware = hardware_named(target)
    requests = preset_requests(preset, hardware)
    asked = options.placement
    placement = replace(
        asked,
        weights=SpecRequest(bits=weight_bits).over(asked.weights).over(requests[0]),
        activations=SpecRequest(bits=activation_bits).over(asked.activations).over(requests[1]),
        ignored_scopes=(*asked.ignored_scopes, *ignored_scopes),
    )
    _check_not_quantized(model)
    model = own_model(model, inplace=inplace)
    was_wrapped = isinstance(model, NNCFNetwork)
    network, batches = _wrapped(model, calibration_batches)
    try:
        device = next((one.device for one in network.parameters()), torch.device("cpu"))
        inputs = calibration_inputs(batches, network, samples, device)
        _quantize(network, hardware, placement, options, inputs)
    except BaseException:
        network.nncf.remove(ALGORITHM)
        if not was_wrapped:
            unwrap(network)
        raise
    return network


def _check(
    model: object, batches: object, target: object, ignored_scopes: object, options: object
) -> None:
    """Refuse what Python would take for something else, such as a tensor for its rows."""
    # torch's own data sets can be iterated by their numbered items alone
    is_iterable = isinstance(batches, Iterable) or "__getitem__" in dir(type(batches))
    mends = {
        "model": (isinstance(model, nn.Module), model, "Pass a torch.nn.Module."),
        "calibration_batches": (
            is_iterable and not isinstance(batches, (torch.Tensor, Mapping, str)),
            batches,
            "It is an iterable of batches: pass a loader, or a list: [batch], images.split(32).",
        ),
        "target": (
            isinstance(target, (str, Target, Hardware)),
            target,
            "Pass a name, such as 'onnxruntime', or a nncfx.targets.Target.",
        ),
        "ignored_scopes": (
            isinstance(ignored_scopes, Iterable)
            and not isinstance(ignored_scopes, str)
            and all(isinstance(one, str) for one in ignored_scopes),
            ignored_scopes,
            f"It is a sequence of scopes, which are texts: write [{str(ignored_scopes)!r}].",
        ),
        "options": (
            isinstance(options, QuantizeOptions),
            options,
            "Pass nncfx.quantization.QuantizeOptions(...).",
        ),
    }
    for name, (is_right, value, mend) in mends.items():
        if not is_right:
            raise ArgumentError(f"{name} is a {type(value).__name__}. {mend}")


def preset_requests(preset: Preset, hardware: Hardware) -> tuple[SpecRequest, SpecRequest]:
    """Return what `preset` asks of weights and of activations on `hardware`.

    Raises:
        ArgumentError: there is no such preset.
    """
    if preset not in ("performance", "mixed"):
        raise ArgumentError(
            f"There is no preset '{preset}'; known are performance and mixed."
            f"{did_you_mean(preset, ['performance', 'mixed'])}",
        )
    is_symmetric = preset == "performance" or hardware.symmetric_activations
    activations = SpecRequest(mode="symmetric" if is_symmetric else "asymmetric")
    return SpecRequest(mode="symmetric"), activations


def _check_not_quantized(model: nn.Module) -> None:
    hooks = model.nncf.hooks if isinstance(model, NNCFNetwork) else ()
    if any(one.algorithm == ALGORITHM for one in hooks):
        raise ArgumentError(
            "The model carries quantizers already. Call "
            f"model.nncf.remove('{ALGORITHM}') first, or go on with it as it is.",
        )


def _wrapped(model: nn.Module, batches: Iterable[Any]) -> tuple[NNCFNetwork, Iterable[Any]]:
    """Return the wrapped model, traced with the first batch if need be, and all batches."""
    if isinstance(model, NNCFNetwork):
        return model, batches
    iterator = iter(batches)
    try:
        first = next(iterator)
    except StopIteration as error:
        raise ArgumentError(
            "There are no batches to calibrate with. Pass an iterable with at least one; a "
            "generator that was read before is empty.",
        ) from error
    example = _traceable(first, model)
    try:
        network = wrap(model, example)
    except TracingError as error:
        if error.__cause__ is None:
            raise
        args, kwargs = as_call(example)
        given = [type(one).__name__ for one in args] + [f"{name}=" for name in kwargs]
        raise TracingError(
            f"{error} It was called with ({', '.join(given)}) of the first calibration batch, a "
            f"{type(first).__name__}. Map your loader to the inputs, such as "
            "[(batch['image'],) for batch in loader]; labels may come behind them in a tuple.",
        ) from error
    return network, itertools.chain([first], iterator)


def _quantize(
    model: NNCFNetwork,
    hardware: Hardware,
    placement: PlacementOptions,
    options: QuantizeOptions,
    inputs: Iterable[ExampleInputs],
) -> None:
    if _sees_data_again(options):
        inputs = list(inputs)
    per_tensor = not hardware.per_channel_weights or placement.weights.per_channel is False
    if per_tensor or options.equalize:
        # with one scale per channel, folding changes nothing that is rounded (decision 0006)
        fold_batch_norms(model, model.nncf.example_inputs)
    if options.equalize:
        equalize_layers(model, model.nncf.example_inputs)
    if options.smooth:
        smooth_layers(model, inputs, model.nncf.example_inputs)
    changed = changed_buffers(model)
    plan = plan_quantizers(model.nncf.graph, hardware, placement, changed=changed)
    plan = with_overflow_fix(plan, options.overflow_fix, hardware)
    _report(plan)
    warn_unread_weights(model)
    placed = place_quantizers(model, plan)
    set_weight_ranges(model, placed, lambda _: options.weight_range)
    calibrate(model, placed, inputs, lambda _: options.activation_range)
    model.nncf.register(insertions_of(placed))
    model.nncf.commit()
    if options.rounding != "nearest":
        round_weights(model, inputs, method=options.rounding)
    if options.correct_biases:
        correct_biases(model, inputs)


def _sees_data_again(options: QuantizeOptions) -> bool:
    return options.smooth or options.correct_biases or options.rounding != "nearest"


def _report(plan: QuantizationPlan) -> None:
    """Tell which products stay in float against expectation.

    Raises:
        CompressionError: nothing is quantized at all.
    """
    if not plan.quantizers:
        reasons = {f"{one.address}: {one.reason}" for one in plan.float_operations}
        mend = "Widen the scopes, or choose another target."
        if any("." in one.address.rpartition("/")[2] for one in plan.float_operations):
            mend = "It calls operators of torch.export: quantize the module that was exported."
        raise CompressionError(
            f"Nothing in the model can be quantized for {plan.hardware}: "
            f"{'; '.join(sorted(reasons)[:5]) or 'it computes nothing in float'}. "
            f"{mend}",
        )
    for one in plan.float_operations:
        if one.kind in _LOGGED and "scopes" not in one.reason:
            _LOGGER.warning("%s stays in float: %s", one.address, one.reason)
    _LOGGER.info("%s", plan)


def _traceable(batch: Any, model: nn.Module) -> ExampleInputs:  # noqa: ANN401 (as a loader gives)
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    return next(iter(calibration_inputs([batch], model, 1, device)))
