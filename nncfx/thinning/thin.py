"""Remove dead channels from a model, and prove that nothing else changed: `thin`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from torch import nn

from nncfx.algorithms.channel_pruning.masked_norm_statistics import NormHook, has_living_norms
from nncfx.channels import analyze_channels
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


def thin(  # noqa: PLR0913 (the front door: one word per setting, each with a default)
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

    A channel is dead when every weight that reads it is exactly zero, whatever creates it.
    Channels that can only be removed together are removed if all are dead. Of each layer's outputs
    at least one stays. The copy is compared with the original in evaluation mode on all inputs
    given and on random ones of their shapes and types, and has to run in training mode if the
    original does. Modules that no input reaches keep the channels that they could read
    (`unreached`).

    A model with quantizers at activations is thinned without them; then the thin model, wrapped,
    gets them back, without the scales of removed channels, and is compared once more.

    Args:
        model: any module; a wrapped one is stripped first. It is never changed. One that FSDP2 or
            tensor parallel has sharded is gathered, by all processes; each returns the same.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs;
            a wrapped model has its own.
        further_inputs: more of them, for a model whose forward branches; a wrapped model adds
            those that it was traced with.
        align: every width that changes is a multiple of this, or suits the runtime of this name
            (`nncfx.targets`: "onnxruntime", "tensorrt" ...); dead channels are kept for it.
        tolerance: the largest relative error accepted; None for 1e-5 in float32, 1e-12 in
            float64, which decides where rounding alone makes float32 differ by more.
        channels: what `prunable_channels` has found for this model, to save its time; its
            `living_norms` then counts.
        living_norms: whether channels may be removed that a layer, RMS or group norm or a mean
            averages over. The comparison is then with a model whose norms see the remaining
            channels only; the plain masked model computes something else. A model that was pruned
            so, by a config with `living_norms`, does not need it.
        form: "class" keeps the class of every module, and with it dead channels whose number
            stands in its code; "auto" gives such modules, and no others, the form of an
            `fx.GraphModule` whose integers fit (`exchanged` names them).
        inplace: remove the channels from `model` itself, one tensor at a time, and return it as
            the result's `model`: no second model is in memory. Modules keep their classes, as
            with the form "class"; a wrapped model is unwrapped. It is run by shapes without the
            channels first; should its values differ nevertheless, it is not what it was.

    Raises:
        ArgumentError: `align` is less than 1 or no runtime, `tolerance` is negative, `form` is
            none, `example_inputs` are missing or of no accepted form, or the model is on meta.
        GraphError: `channels` are of another model.
        TracingError: the model refuses the inputs, or a hook cannot be baked in.
        ThinningError: `model` is sharded or offloaded; or it is to be thinned in place and has
            quantizers at activations, or norms of remaining channels; or the copy fails or
            differs, and the message names the first operation that does; or the outputs prove
            nothing: they are all NaN, or one number (zero) for all inputs. Nothing is changed,
            unless it is in place that values differ.

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
    """Tell once that a model of transformers keeps a config of the widths before."""
    _LOGGER.warning(
        "The config of a thinned %s has the widths before: what its own save_pretrained writes "
        "cannot be read. nncfx.integrations.pretrained.save_pretrained(model, folder) writes a "
        "config that fits, where there is one.",
        name,
    )


def _tried(
    work: Work, followed: Channels, tried: Callable[..., Channels], form: Form
) -> ThinResult:
    """Return the result without the dead ones of `followed`, or of what trials leave of them."""
    first = work.attempted(followed)
    if first is not None and (form == "class" or not work.may_gain(followed)):
        return first
    # the code holds a width, which trials find
    freed = work.attempted(tried(form="auto")) if form == "auto" else None
    return freed or work.result(tried(), explain=True)


def _check_in_place(model: nn.Module) -> None:
    """Raise an error if `model` cannot be thinned itself.

    Raises:
        ThinningError: it needs a second one, which it is compared with or takes hooks from.
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
    """Return all inputs; a wrapped model adds those with which it was traced as well."""
    first = inputs_for(model, example_inputs)
    own = model.nncf.further_inputs if isinstance(model, NNCFNetwork) else ()
    return (first, *further_inputs, *own)


def _as_trained(
    result: ThinResult,
    model: NNCFNetwork,
    inputs: Sequence[ExampleInputs],
    tolerance: float | None,
) -> ThinResult:
    """Return the result, compared with a model whose norms see the remaining channels only.

    Raises:
        ThinningError: they differ, because dead channels stay that norms now see.
    """
    if not result.fixed:  # then all are gone, and the comparison has been made
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
