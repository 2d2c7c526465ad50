"""Removes dead channels from a model, and proves that nothing else changed: `thin`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from torch import nn

from nncfx.algorithms.channel_pruning.masked_norm_statistics import NormHook, has_living_norms
from nncfx.channels import analyze_channels
from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.errors import ArgumentError, ThinningError
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork, inputs_for
from nncfx.quantization import Quantizer
from nncfx.schemes.masks.alignment import resolve_alignment
from nncfx.storage.models.sharded_models import has_shards
from nncfx.storage.models.whole_models import require_values, require_whole
from nncfx.targets import Alignment, Target
from nncfx.thinning.probing import Form, check_form, prunable_channels
from nncfx.thinning.quantizers import is_quantized, quantized_again, without_hooks
from nncfx.thinning.result import ThinResult
from nncfx.thinning.selection import check_fit
from nncfx.thinning.subject import subject_of
from nncfx.thinning.verification import verify
from nncfx.thinning.work import Work
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.model_copy import whole_model
from nncfx.tracing.calls.module_check import require_module
from nncfx.tracing.hooks.dynamic_class import original_class

_LOGGER = logging.getLogger(__name__)


@tells_arguments()
def thin(  # noqa: PLR0913 (entry point: one argument per setting)
    model: nn.Module,
    example_inputs: ExampleInputs | None = None,
    *,
    further_inputs: Sequence[ExampleInputs] = (),
    align: int | str | Alignment | Target = 1,
    tolerance: float | None = None,
    channels: Channels | None = None,
    living_norms: bool = False,
    form: Form = "auto",
    inplace: bool = False,
) -> ThinResult:
    """Return a copy of `model` without its dead channels, which computes the same.

    A channel is dead if every weight that reads it is exactly zero, whatever creates it. Channels
    that can only be removed together are removed if all are dead. At least one output of each
    layer is kept. The copy is compared with the original in evaluation mode on all given inputs
    and on random ones of their shapes and types, and must run in training mode if the original
    does. Modules that no input reaches keep the channels that they could read (`unreached`).

    A model with quantizers at activations is thinned without them; the quantizers, without the
    scales of removed channels, are then inserted into the thin model, which is compared once more.

    Args:
        model: any module; a wrapped one is stripped first. It is never changed. A model sharded by
            FSDP2 or tensor parallelism is gathered by all processes; each returns the same result.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs; a
            wrapped model has its own.
        further_inputs: more example inputs, for a model whose forward branches; a wrapped model
            adds those that it was traced with.
        align: every width that changes becomes a multiple of this, or suits the runtime of this
            name (`nncfx.targets`: "onnxruntime", "tensorrt" ...), by keeping some dead channels.
        tolerance: the largest relative error accepted; None for 1e-5 in float32, or 1e-12 in
            float64, which decides if rounding alone makes float32 differ by more.
        channels: the result of `prunable_channels` for this model, to save time; its
            `living_norms` then applies.
        living_norms: whether to remove channels that a layer, RMS or group norm or a mean averages
            over. The reference of the comparison is then a model whose norms see the remaining
            channels only, unlike the plain masked model. Not needed for a model that was pruned
            this way, by a config with `living_norms`.
        form: "class" keeps the class of every module, and with it dead channels whose number is
            part of its code; "auto" converts only such modules to an `fx.GraphModule` with adapted
            integers (`exchanged` names them).
        inplace: remove the channels from `model` itself, one tensor at a time, and return it as
            the result's `model`, without a second model in memory. Modules keep their classes, as
            with the form "class"; a wrapped model is unwrapped. A shape-only run without the
            channels comes first; if the values differ nevertheless, `model` stays changed.

    Raises:
        ArgumentError: `align` is less than 1 or not a runtime, `tolerance` is negative, `form` is
            invalid, `example_inputs` are missing or invalid, or the model is on the meta device.
        GraphError: `channels` belong to another model.
        TracingError: the model rejects the inputs, or a hook cannot be baked in.
        ThinningError: `model` is sharded or offloaded; or `inplace` is set and it has quantizers
            at activations or norms of remaining channels; or the copy fails or differs, and the
            message names the first operation that does; or the outputs prove nothing: they are all
            NaN, or one number (zero) for all inputs. `model` is unchanged, unless `inplace` is set
            and values differ.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> model[2].weight.data[:, ::2] = 0
    >>> thinned = thin(model, torch.ones(1, 3))
    >>> thinned.removed, thinned.model[0].out_features
    ({'0': (0, 2)}, 2)
    """
    require_module(model, "thin")
    kind = original_class(model)
    if any(one.__module__ == "transformers.modeling_utils" for one in kind.__mro__):
        _warn_of_config(kind.__name__)
    if inplace:
        _check_in_place(model)
    model = whole_model(model)
    require_whole(model, "thinned", ThinningError)
    require_values(model, "thinned")
    check_form(form)
    alignment = resolve_alignment(align)
    if tolerance is not None and not tolerance >= 0:
        raise ArgumentError(f"tolerance is {tolerance}; a relative error is at least 0.")
    inputs = _inputs(model, example_inputs, further_inputs)
    thinned = partial(
        thin,
        example_inputs=inputs[0],
        further_inputs=inputs[1:],
        align=alignment,
        tolerance=tolerance,
        channels=channels,
    )
    if isinstance(model, NNCFNetwork) and is_quantized(model):
        bare = without_hooks(model, Quantizer)
        result = thinned(bare, living_norms=living_norms, form=form)
        again = quantized_again(result.model, result.entries, model, inputs, tolerance)
        return replace(result, model=again[0], max_error=max(result.max_error, again[1]))
    if isinstance(model, NNCFNetwork) and has_living_norms(model):
        result = thinned(without_hooks(model, NormHook), living_norms=True, form=form)
        return _as_trained(result, model, inputs, tolerance)
    work = Work(subject_of(model), inputs, alignment, tolerance)
    if channels is not None:
        check_fit(channels, work.subject.tensors)
        in_place = work.result_in_place(model, channels) if inplace else None
        return in_place or work.result(channels, explain=True)
    how: dict[str, Any] = {"further_inputs": inputs[1:], "living_norms": living_norms}
    followed = analyze_channels(work.subject.plain, inputs[0], **how)
    tried = partial(prunable_channels, work.subject.plain, inputs[0], **how)
    if inplace:
        return work.result_in_place(model, followed, tried)
    return _tried(work, followed, tried, form)


@cache
def _warn_of_config(name: str) -> None:
    """Warn once that a transformers model keeps a config with the old widths."""
    _LOGGER.warning(
        "The config of a thinned %s has the widths before: what its own save_pretrained writes "
        "cannot be read. nncfx.integrations.pretrained.save_pretrained(model, folder) writes a "
        "config that fits, where there is one.",
        name,
    )


def _tried(
    work: Work, followed: Channels, tried: Callable[..., Channels], form: Form
) -> ThinResult:
    """Return the result without dead channels of `followed`, or of what trials leave of them."""
    first = work.attempted(followed)
    if first is not None and (form == "class" or not work.may_gain(followed)):
        return first
    # the code contains a width, which trials find
    freed = work.attempted(tried(form="auto")) if form == "auto" else None
    return freed or work.result(tried(), explain=True)


def _check_in_place(model: nn.Module) -> None:
    """Check that `model` can be thinned in place.

    Raises:
        ThinningError: it needs a second model to compare with or to take hooks from.
    """
    what = ""
    if has_shards(model):
        what = "is sharded"
    elif isinstance(model, NNCFNetwork) and is_quantized(model):
        what = "has quantizers at activations"
    elif isinstance(model, NNCFNetwork) and has_living_norms(model):
        what = "has hooks at norms, which see living channels only"
    if what:
        raise ThinningError(
            f"The {type(model).__name__} {what}, and so cannot be thinned in place. Leave out "
            "inplace=True; the thin model is a copy then."
        )


def _inputs(
    model: nn.Module, example_inputs: ExampleInputs | None, further_inputs: Sequence[ExampleInputs]
) -> tuple[ExampleInputs, ...]:
    """Return all inputs; a wrapped model adds those that it was traced with."""
    first = inputs_for(model, example_inputs)
    own = model.nncf.further_inputs if isinstance(model, NNCFNetwork) else ()
    return (first, *further_inputs, *own)


def _as_trained(
    result: ThinResult,
    model: NNCFNetwork,
    inputs: Sequence[ExampleInputs],
    tolerance: float | None,
) -> ThinResult:
    """Return the result after comparing it with a model whose norms see remaining channels only.

    Raises:
        ThinningError: they differ, because norms now see dead channels that were kept.
    """
    if not result.fixed:  # all dead channels are removed, and the comparison was already made
        return result
    try:
        error = verify(model, result.model, inputs[0], tolerance, further_inputs=inputs[1:])
    except ThinningError as fault:
        stay = "; ".join(f"of '{name}': {why}" for name, why in result.fixed.items())
        raise ThinningError(
            f"{fault} In training, norms have seen the living channels only ('living_norms'); "
            f"thinned, they would see dead ones that stay ({stay}). Give 'align' to the pruning "
            "algorithm and not to thin, and take channels that cannot go out of its scopes."
        ) from fault
    return replace(result, max_error=max(result.max_error, error))
