"""Remove dead channels from a model, and prove that nothing else changed: `thin`."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.controllers.living_norms import NormHook, has_living_norms
from nncfx.errors import ArgumentError, ThinningError
from nncfx.graph.channels import Channels
from nncfx.quantization import Quantizer
from nncfx.schemes.alignment import Alignment, resolve_alignment
from nncfx.storage.narrow_attention import NarrowAttention
from nncfx.storage.whole_models import require_whole
from nncfx.thinning.carried_recipes import carry, recipes_of
from nncfx.thinning.probing import Form, check_form, prunable_channels
from nncfx.thinning.quantizers import is_quantized, quantized_again, without_hooks
from nncfx.thinning.recipe import ThinRecipe
from nncfx.thinning.removal import Removal, removed
from nncfx.thinning.selection import Selection, check_fit, has_dead_entries, select_removable
from nncfx.thinning.surgery import Sizes, sized_on_the_way
from nncfx.thinning.verification import first_divergence, verify
from nncfx.tracing import ExampleInputs, NNCFNetwork, analyze_channels, inputs_for, strip
from nncfx.tracing.module_walk import all_modules, all_tensors

__all__ = ["ThinResult", "thin"]

_GRAPH: Final = "GraphModule: widths that stand in the code of {} have changed"
_NO_NUMBERS: Final = (
    "Every output of the model on the example inputs is NaN, so that comparing the thinned model "
    "with it would prove nothing. Its weights may have diverged, or its code may not compute in "
    "their dtype; thin a model, and pass inputs, that give numbers."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ThinResult:
    """A thinned model, what went, and the proof.

    Attributes:
        model: a smaller copy, of the same class unless `exchanged` says something else, in the
            same mode. It carries its recipe, and what it was thinned from those before, so that
            `nncfx.save` and `nncfx.storage.save` write what brings it back.
        exchanged: modules of it whose class cannot hold their widths, with the class they got.
        removed: name of a group set (the module that creates the channels) to the indices of
            the channels removed from it, ascending.
        fixed: name of a group set to the reason why dead channels of it stay.
        max_error: max |thinned - masked| / max |masked| over the outputs on the example inputs.
        sizes: module name to the attributes that changed, with their new values.
        entries: (parameter or buffer, axis) to the indices removed along that axis, ascending.
        parameters: number of parameters before and after.
        channels: number of prunable channel groups before and after.
        recipe: from it and the original class the thin model is rebuilt.
    """

    model: nn.Module
    exchanged: Mapping[str, str]
    removed: Mapping[str, tuple[int, ...]]
    fixed: Mapping[str, str]
    max_error: float
    sizes: Mapping[str, Sizes]
    entries: Mapping[tuple[str, int], tuple[int, ...]]
    parameters: tuple[int, int]
    channels: tuple[int, int]
    recipe: ThinRecipe

    @property
    def note(self) -> str:
        """Why nothing was saved, and what to do; empty where something was."""
        before, after = self.parameters
        if after < before:
            return ""
        if self.fixed:
            return (
                "Nothing saved: dead channels are kept, for the reasons above. Take those away, "
                "or prune other layers."
            )
        return (
            "Nothing saved: no channel is dead, that is, read by zeros alone. Prune whole "
            "channels first, such as with filter_pruning; single weights that are zero free none."
        )

    @override
    def __str__(self) -> str:
        """Return a summary of a few lines."""
        before, after = self.parameters
        share = 1 - after / before if before else 0.0
        groups, left = self.channels
        lines = [
            f"Channel groups: {groups:,} -> {left:,}, removed at {len(self.removed)} places.",
            f"Parameters: {before:,} -> {after:,} (-{share:.1%}).",
            f"Relative error against the masked model: {self.max_error:.1e}.",
        ]
        lines += [
            f"{repr(name) if name else 'The model'} is now a {kind}."
            for name, kind in self.exchanged.items()
        ]
        lines += [f"Dead but kept at '{name}': {why}." for name, why in self.fixed.items()]
        return "\n".join([*lines, *filter(None, [self.note])])


def thin(  # noqa: PLR0913 (the front door: one word per setting, each with a default)
    model: nn.Module,
    example_inputs: ExampleInputs | None = None,
    *,
    align: int | str | Alignment = 1,
    tolerance: float | None = None,
    channels: Channels | None = None,
    living_norms: bool = False,
    form: Form = "auto",
) -> ThinResult:
    """Return a copy of `model` without its dead channels, which computes the same.

    A channel is dead when every weight that reads it is exactly zero, whatever creates it.
    Channels that can only go together go if all are dead. Of each layer's outputs at least one
    stays. The copy is compared with the original in evaluation mode on `example_inputs`.

    A model with quantizers at activations is thinned without them, with the form "class"; then
    the thin model, wrapped, gets them back, without the scales of channels that went, and is
    compared once more.

    Args:
        model: any module; a wrapped one is stripped first. It is never changed.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs;
            a wrapped model has its own.
        align: every width that changes is a multiple of this, or suits the runtime of this name
            (`ALIGNMENTS`: "onnxruntime", "tensorrt" ...); dead channels are kept for it.
        tolerance: the largest relative error accepted; None for 1e-5 in float32, 1e-12 in
            float64.
        channels: what `prunable_channels` has found for this model, to save its time; its
            `living_norms` then counts.
        living_norms: whether channels may go that a layer, RMS or group norm or a mean averages
            over. The comparison is then with a model whose norms see the living channels only;
            the plain masked model computes something else. A model that was pruned so, by a config
            with `living_norms`, needs no word of it.
        form: "class" keeps the class of every module, and with it dead channels whose number
            stands in its code; "auto" gives such modules, and no others, the form of an
            `fx.GraphModule` whose integers fit (`exchanged` names them).

    Raises:
        ArgumentError: `align` is less than 1 or no runtime, `tolerance` is negative, `form` is
            none, or `example_inputs` are missing or of no accepted form.
        GraphError: `channels` are of another model.
        TracingError: the model refuses the inputs, or a hook cannot be baked in.
        ThinningError: `model` is sharded or offloaded; or the copy fails or differs, and the
            message names the first operation that does; or the outputs are all NaN. Nothing is
            changed.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> model[2].weight.data[:, ::2] = 0
    >>> thinned = thin(model, torch.ones(1, 3))
    >>> thinned.removed, thinned.model[0].out_features
    ({'0': (0, 2)}, 2)
    """
    require_whole(model, "thinned", ThinningError)
    check_form(form)
    alignment = resolve_alignment(align)
    if tolerance is not None and not tolerance >= 0:
        raise ArgumentError(f"tolerance is {tolerance}; a relative error is at least 0.")
    example_inputs = inputs_for(model, example_inputs)
    thinned = partial(
        thin,
        example_inputs=example_inputs,
        align=alignment,
        tolerance=tolerance,
        channels=channels,
    )
    if isinstance(model, NNCFNetwork) and is_quantized(model):
        plain = without_hooks(model, Quantizer)
        result = thinned(plain, living_norms=living_norms, form="class")
        again = quantized_again(result.model, result.entries, model, example_inputs, tolerance)
        return replace(result, model=again[0], max_error=max(result.max_error, again[1]))
    if isinstance(model, NNCFNetwork) and has_living_norms(model):
        result = thinned(without_hooks(model, NormHook), living_norms=True, form=form)
        return _as_trained(result, model, example_inputs, tolerance)
    masked = strip(model) if isinstance(model, NNCFNetwork) else model
    work = _Work(masked, example_inputs, alignment, tolerance)
    if channels is None:
        followed = analyze_channels(masked, example_inputs, living_norms=living_norms)
        with suppress(ThinningError):
            result = work.result(followed)
            if form == "class" or not work.may_gain(followed):
                return result
        # the code holds a width, which trials find
        if form == "auto":
            freed = prunable_channels(
                masked, example_inputs, living_norms=living_norms, form="auto"
            )
            with suppress(ThinningError):
                return work.result(freed)
        channels = prunable_channels(masked, example_inputs, living_norms=living_norms)
    check_fit(channels, work.tensors)
    return work.result(channels, explain=True)


def _as_trained(
    result: ThinResult,
    model: NNCFNetwork,
    example_inputs: ExampleInputs,
    tolerance: float | None,
) -> ThinResult:
    """Return the result, compared with a model whose norms see the living channels only.

    Raises:
        ThinningError: they differ, because dead channels stay that norms now see.
    """
    if not result.fixed:  # then all are gone, and the comparison has been made
        return result
    try:
        error = verify(model, result.model, example_inputs, tolerance)
    except ThinningError as fault:
        stay = "; ".join(f"of '{name}': {why}" for name, why in result.fixed.items())
        raise ThinningError(
            f"{fault} In training, norms have seen the living channels only ('living_norms'); "
            f"thinned, they would see dead ones that stay ({stay}). Give 'align' to the pruning "
            "algorithm and not to thin, and take channels that cannot go out of its scopes."
        ) from fault
    return replace(result, max_error=max(result.max_error, error))


@dataclass(frozen=True, eq=False)
class _Work:
    """A masked model, and how it is to be thinned."""

    masked: nn.Module
    example_inputs: ExampleInputs
    alignment: Alignment
    tolerance: float | None

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Its parameters and buffers by name."""
        return all_tensors(self.masked)

    def result(self, channels: Channels, *, explain: bool = False) -> ThinResult:
        """Return the model without the dead ones of `channels`.

        Raises:
            ThinningError: it fails or differs; the message names the operation if asked to.
        """
        selection = select_removable(channels, self.tensors, self.alignment)
        removal = removed(self.masked, channels, selection)
        try:
            with sized_on_the_way(removal.model, removal.sizes):
                error = verify(
                    self.masked, removal.model, self.example_inputs, self.tolerance, removal.dead
                )
        except ThinningError as fault:
            if explain:
                raise self._explained(fault, removal) from fault
            raise
        if math.isnan(error):
            raise ThinningError(_NO_NUMBERS)
        total = sum(group_set.size for group_set in channels.prunable)
        distinct = {id(one): one for one in removal.entries.values()}
        tuples = {key: tuple(one.tolist()) for key, one in distinct.items()}
        taken = {key: tuples[id(one)] for key, one in removal.entries.items()}
        kind = type(self.masked)
        recipe = ThinRecipe(
            model_class=f"{kind.__module__}.{kind.__qualname__}",
            removed=taken,
            sizes=removal.sizes,
            forms=removal.forms,
        )
        carry(removal.model, (*recipes_of(self.masked), recipe))
        return ThinResult(
            model=removal.model,
            exchanged={
                **{
                    name: NarrowAttention.__qualname__
                    for name, module in all_modules(removal.model)
                    if type(module) is NarrowAttention
                },
                **{
                    name: _GRAPH.format(type(self.masked.get_submodule(name)).__name__)
                    for name in removal.forms
                },
            },
            removed=_removed(channels, selection),
            fixed=dict(selection.kept),
            max_error=error,
            sizes=removal.sizes,
            entries=taken,
            parameters=(_count(self.masked), _count(removal.model)),
            channels=(total, total - sum(len(groups) for groups in selection.groups.values())),
            recipe=recipe,
        )

    def may_gain(self, channels: Channels) -> bool:
        """Return whether something dead stays because of widths that stand in the code."""
        places = {place for each in channels.literals.values() for place in each}
        return any(
            has_dead_entries(one, self.tensors)
            for one in channels
            if one.fixed is not None and one.fixed_at in places
        )

    def _explained(self, fault: ThinningError, removal: Removal) -> ThinningError:
        address = first_divergence(self.masked, removal, self.example_inputs, self.tolerance)
        return ThinningError(
            f"{fault} The first operation at fault is '{address}'. The model is as it was; "
            "its code may hold a width, or its channels meet in a way that is not seen.",
        )


def _count(model: nn.Module) -> int:
    parameters = {id(one): one for one in all_tensors(model, "_parameters").values()}
    return sum(one.numel() for one in parameters.values())


def _removed(channels: Channels, selection: Selection) -> dict[str, tuple[int, ...]]:
    """Return the removed channels as indices of the first producer's outputs."""
    return {
        name: tuple(channels.find(name).origin.entries(groups).tolist())
        for name, groups in selection.groups.items()
    }
