"""Post-training quantization in one call."""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.controllers.base.unread_weights import warn_unread_weights
from nncfx.errors import ArgumentError, CompressionError, TracingError
from nncfx.network import NNCFNetwork, inputs_in, unwrap, warn_unused_inputs, wrap
from nncfx.quantization.drowned_channels import without_drowned_channels
from nncfx.quantization.grid.plan import QuantizationPlan
from nncfx.quantization.harmful_storage import without_harmful_storage
from nncfx.quantization.options import Methods, Preset, QuantizeOptions, preset_requests, resolved
from nncfx.quantization.packing.pack_weights import codes_fix
from nncfx.quantization.placement.insertions import (
    insert_quantizers,
    place_quantizers,
    without_hooks,
)
from nncfx.quantization.placement.placement_options import SpecRequest
from nncfx.quantization.placement.plan_model import plan_model, warn_of_plan
from nncfx.quantization.preparation.batch_norm_folding import fold_batch_norms
from nncfx.quantization.preparation.bias_correction import correct_biases, noting_means
from nncfx.quantization.preparation.equalization import equalize_layers
from nncfx.quantization.preparation.smooth_quant import smooth_layers
from nncfx.quantization.ranges.batch_parts import in_parts
from nncfx.quantization.ranges.calibration import (
    calibrate,
    calibration_inputs,
    first_examples,
    set_weight_ranges,
)
from nncfx.quantization.ranges.observation import no_batches
from nncfx.quantization.rounding.layer_rounding import round_weights
from nncfx.quantization.signal_error import warn_large_errors
from nncfx.targets import DTYPES, Hardware, Target, hardware_named
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.model_copy import own_model
from nncfx.tracing.calls.preservation import drop_kept

_LOGGER = logging.getLogger(__name__)
_CORRECTED: Final = 128
"""Examples used to correct biases. The error of a mean over n examples adds 1/n of the energy of
the other errors, so more examples hardly help, and each costs a quantized forward."""
_LOOKED_AT: Final = 16
"""Examples used to measure the error of each layer."""


@tells_arguments()
def quantize(  # noqa: PLR0913 (keyword-only, the front door)
    model: nn.Module,
    calibration_batches: Iterable[Any],
    *,
    target: str | Target | Hardware = "onnxruntime",
    preset: Preset = "default",
    weight_bits: int | None = None,
    activation_bits: int | None = None,
    ignored_scopes: Sequence[str] = (),
    samples: int = 300,
    options: QuantizeOptions | None = None,
    inplace: bool = False,
) -> NNCFNetwork:
    """Return a copy of `model`, wrapped, with calibrated quantizers on activations and weights.

    The copy computes in float what the target computes in integers; `nncfx.export_onnx` writes
    the integers. Convolutions, products, attention and recurrent layers that must stay in float
    are logged as warnings, with the reason; `plan_quantizers` lists all operations.

    Args:
        model: A trained model, wrapped or not; quantized in evaluation mode. It is not changed
            unless `inplace` is true. The copy of a model that has a controller keeps the masks
            but is not connected to that controller.
        calibration_batches: Any iterable, such as a loader. A batch is a tensor, a mapping of
            keyword inputs, a dataclass as the only input, a tuple of all positional inputs, or a
            pair of one of these and labels; anything after the inputs is ignored. Batches are
            read until `samples` examples are seen.
        target: The name of a target, a JSON file that describes one, a `Target`, or a `Hardware`.
        preset: How much is done for accuracy; `options` override it. "fast": only find ranges, in
            one pass over the data. "default": also remove the mean error of each layer with its
            bias; weights of fewer than 8 bits have the ranges of least squared error and are
            rounded by GPTQ. "thorough": their rounding is learned block by block, which takes
            minutes. Weights are symmetric and activations asymmetric, or symmetric where the
            target supports nothing else. "performance" is "default" with symmetric activations,
            and "mixed", its counterpart in NNCF, is "default".
        weight_bits: Width of weights; the target decides if None.
        activation_bits: Width of activations; the target decides if None.
        ignored_scopes: Addresses, scopes, `{function}<name>` or `{re}` patterns of operations that
            stay in float.
        samples: How many examples are used; biases are corrected with the first 128 of them.
        options: Further methods and overrides of the preset.
        inplace: Quantize and return `model` itself. This needs no memory for a copy, and its
            controller stays connected.

    Raises:
        ArgumentError: there are no batches, or one has an unknown form; no target has that name;
            the target does not support that many bits; the model is quantized already, or cannot
            be copied.
        GraphError: a scope matches no operation.
        CompressionError: nothing can be quantized, or an activation is NaN or infinite.
        TracingError: the model cannot be traced.

    After any error the model has no quantizers, and it is wrapped only if it was before. With
    `inplace`, changes that `options` made to the weights are not undone.

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
        inputs: Iterable[ExampleInputs] = calibration_inputs(batches, network, samples)
        per_tensor = not hardware.per_channel_weights or placement.weights.per_channel is False
        methods = resolved(options, preset, per_tensor=per_tensor)
        if methods.may_see_data_again:
            inputs = list(inputs)
        _prepare(network, methods, inputs, folds=per_tensor)
        plan = plan_model(network, target, placement, options.overflow_fix)
        _report(plan, hardware, codes_fix(network))
        _quantize(network, plan, methods, inputs)
    except BaseException:
        network.nncf.remove(QuantizationPlan.algorithm)
        if not was_wrapped:
            unwrap(network)
        raise
    return network


def _check(
    model: object, batches: object, target: object, ignored_scopes: object, options: object
) -> None:
    """Check types that Python would silently misread, such as a tensor as a list of its rows."""
    # torch's own data sets have no __iter__, only __getitem__
    is_iterable = isinstance(batches, Iterable) or "__getitem__" in dir(type(batches))
    fixes = {
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
            f"It is a sequence of scopes, which are strings: write [{str(ignored_scopes)!r}].",
        ),
        "options": (
            isinstance(options, QuantizeOptions),
            options,
            "Pass nncfx.quantization.QuantizeOptions(...).",
        ),
    }
    for name, (is_right, value, fix) in fixes.items():
        if not is_right:
            raise ArgumentError(f"{name} is a {type(value).__name__}. {fix}")


def _check_not_quantized(model: nn.Module) -> None:
    hooks = model.nncf.hooks if isinstance(model, NNCFNetwork) else ()
    if any(one.algorithm == QuantizationPlan.algorithm for one in hooks):
        raise ArgumentError(
            "The model carries quantizers already. Call "
            f"model.nncf.remove('{QuantizationPlan.algorithm}') first, or keep it as it is."
        )


def _wrapped(model: nn.Module, batches: Iterable[Any]) -> tuple[NNCFNetwork, Iterable[Any]]:
    """Return the wrapped model, traced with the first batch if necessary, and all batches."""
    if isinstance(model, NNCFNetwork):
        return model, batches
    iterator = iter(batches)
    try:
        first = next(iterator)
    except StopIteration as error:
        raise no_batches() from error
    warn_unused_inputs(first, model)
    return _traced(model, first), itertools.chain([first], iterator)


def _traced(model: nn.Module, first: Any) -> NNCFNetwork:  # noqa: ANN401 (a batch)
    example = inputs_in(first, model)
    try:
        return wrap(model, example)
    except TracingError as error:
        if error.__cause__ is None:
            raise
        args, kwargs = as_call(example)
        tensors_only = not kwargs and args and all(isinstance(one, Tensor) for one in args)
        if tensors_only and isinstance(first[0], tuple | list):
            # the list may be one input: the images of a detector without annotations
            with suppress(TracingError):
                return wrap(model, (example,))
        given = [type(one).__name__ for one in args] + [f"{name}=" for name in kwargs]
        raise TracingError(
            f"{error} It was called with ({', '.join(given)}) of the first calibration batch, a "
            f"{type(first).__name__}. Map your loader to the inputs, such as "
            "[(batch['image'],) for batch in loader]; labels may follow them in a tuple."
        ) from error


def _prepare(
    model: NNCFNetwork, methods: Methods, inputs: Iterable[ExampleInputs], *, folds: bool
) -> None:
    """Fold batch norms, equalize and smooth."""
    example = model.nncf.example_inputs
    # with hooks of other algorithms, equalise (or refuse to) only on request
    equalizes = methods.equalize and ("equalize" in methods.asked or not model.nncf.hooks)
    if folds or equalizes:
        # with one scale per channel, folding changes nothing that is rounded (decision 0006)
        fold_batch_norms(model, example)
    elif not model.nncf.hooks:
        # runtimes do not recognise frozen batch norms as norms
        fold_batch_norms(model, example, only_frozen=True)
    if equalizes:
        equalize_layers(model, example, was_asked="equalize" in methods.asked)
    if methods.smooth:
        smooth_layers(model, inputs, example)


def _quantize(
    model: NNCFNetwork, plan: QuantizationPlan, methods: Methods, inputs: Iterable[ExampleInputs]
) -> None:
    """Insert quantizers, observe activations, set ranges, round weights and correct biases."""
    warn_unread_weights(model)
    if methods.correct_biases:
        plan = without_harmful_storage(model, plan, methods.weight_range_of, _few(inputs))
        plan = without_drowned_channels(model, plan, _few(inputs))
    hooks = place_quantizers(model, plan)
    set_weight_ranges(model, hooks, methods.weight_range_of)
    noting = noting_means(model) if methods.correct_biases else nullcontext()
    with noting as means:
        masked = calibrate(
            model, hooks, in_parts(model, inputs), lambda _: methods.activation_range
        )
    if masked:
        _LOGGER.warning(
            "%d activations stay in float, the first '%s': numbers in place of infinity, as masks "
            "add, pass them and would leave no steps for others.",
            *(len(masked), masked[0].planned.name),
        )
        hooks = without_hooks(hooks, masked)
    insert_quantizers(model, hooks)
    rounding = methods.rounding_for(plan)
    exact: dict[str, Tensor] = {}
    if methods.correct_biases:
        exact = {
            name: one.detach().clone()
            for name, one in model.named_parameters()
            if rounding is not None or one.ndim == 1  # correction changes biases
        }
    if rounding is not None:
        was_asked = "rounding" in methods.asked
        round_weights(
            model, inputs, method=rounding, most_bits=methods.rounded_bits, was_asked=was_asked
        )
    if methods.correct_biases:
        was_asked = "correct_biases" in methods.asked
        some = first_examples(in_parts(model, inputs), _CORRECTED)
        correct_biases(model, some, float_means=means, was_asked=was_asked)
        warn_large_errors(model, _few(inputs), exact)
    drop_kept(model)


def _few(inputs: Iterable[ExampleInputs]) -> ExampleInputs:
    """Return a few examples of the first batch, or all of them if it is not a single tensor."""
    first = next(iter(inputs))
    return first[:_LOOKED_AT] if isinstance(first, Tensor) else first


def _warn_slow_weights(plan: QuantizationPlan, hardware: Hardware) -> None:
    """Warn of weights whose width has no kernel on the hardware."""
    described = [one for each in hardware.operations.values() for one in each if one.is_quantized]
    narrowest = min((DTYPES[one.input(1)] for one in described), default=0)
    bits = sorted({one.spec.bits for one in plan.weights if one.spec.bits <= narrowest / 2})
    if bits:
        _LOGGER.warning(
            "Weights of %s bits make files smaller, but nothing faster: %s has no kernels for "
            "them and computes with %d bits.",
            " and ".join(map(str, bits)),
            hardware.name,
            narrowest,
        )


def _report(plan: QuantizationPlan, hardware: Hardware, packed_fix: str) -> None:
    """Warn of products that stay in float or saturate, and of weights that bring no speed-up.

    Raises:
        CompressionError: nothing is quantized.
    """
    if not plan.quantizers:
        reasons = {f"{one.address}: {one.reason}" for one in plan.float_operations}
        fix = "Widen the scopes, or choose another target."
        if any("." in one.address.rpartition("/")[2] for one in plan.float_operations):
            fix = "It calls operators of torch.export: quantize the module that was exported."
        fix = packed_fix.lstrip() or fix
        raise CompressionError(
            f"Nothing in the model can be quantized for {plan.hardware}: "
            f"{'; '.join(sorted(reasons)[:5]) or 'it computes nothing in float'}. "
            f"{fix}"
        )
    warn_of_plan(plan)
    _warn_slow_weights(plan, hardware)
    _LOGGER.info("%s", plan)
