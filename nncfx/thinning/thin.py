"""Remove dead channels from a model, and prove that nothing else changed: `thin`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.algorithms.channel_pruning.masked_norm_statistics import NormHook, has_living_norms
from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, ThinningError
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork, inputs_for, strip
from nncfx.quantization import Quantizer
from nncfx.schemes.masks.alignment import resolve_alignment
from nncfx.storage.models.narrow_attention import NarrowAttention
from nncfx.storage.models.whole_models import require_whole
from nncfx.targets import Alignment, Target
from nncfx.thinning.files.carried_recipes import carry, recipes_of
from nncfx.thinning.files.recipe import ThinRecipe
from nncfx.thinning.probing import Form, check_form, prunable_channels
from nncfx.thinning.quantizers import is_quantized, quantized_again, without_hooks
from nncfx.thinning.removal import Removal, removed
from nncfx.thinning.selection import Selection, check_fit, has_dead_entries, select_removable
from nncfx.thinning.surgery import Sizes, sized_on_the_way
from nncfx.thinning.verification import (
    ConstantOutputs,
    NothingProven,
    check_training,
    first_divergence,
    verify,
)
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.model_copy import whole_model
from nncfx.tracing.calls.module_walk import all_modules, all_tensors
from nncfx.tracing.record.unreached_modules import branches_on_training

__all__ = ["ThinResult", "thin"]

_GRAPH: Final = "GraphModule: widths that stand in the code of {} have changed"


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
        max_error: max |thinned - masked| / max |masked| over the outputs on the example inputs
            and on random ones of their shapes.
        unreached: modules (and parameters by themselves) that no example has reached, not in
            training mode either; what they could read has kept its channels.
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
    unreached: tuple[str, ...] = ()

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
        lines += [f"Not reached by any example: '{name}'." for name in self.unreached]
        return "\n".join([*lines, *filter(None, [self.note])])


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
) -> ThinResult:
    """Return a copy of `model` without its dead channels, which computes the same.

    A channel is dead when every weight that reads it is exactly zero, whatever creates it.
    Channels that can only go together go if all are dead. Of each layer's outputs at least one
    stays. The copy is compared with the original in evaluation mode on all inputs given and on
    random ones of their shapes and types, and has to run in training mode if the original does.
    What a module could read that none of them reaches keeps its channels (`unreached`).

    A model with quantizers at activations is thinned without them, with the form "class"; then
    the thin model, wrapped, gets them back, without the scales of channels that went, and is
    compared once more.

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
            message names the first operation that does; or the outputs prove nothing: they are
            all NaN, or one number (zero) for all inputs. Nothing is changed.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> model[2].weight.data[:, ::2] = 0
    >>> thinned = thin(model, torch.ones(1, 3))
    >>> thinned.removed, thinned.model[0].out_features
    ({'0': (0, 2)}, 2)
    """
    model = whole_model(model)
    require_whole(model, "thinned", ThinningError)
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
        plain = _without_quantizers(model)
        result = thinned(plain, living_norms=living_norms, form="class")
        again = quantized_again(result.model, result.entries, model, inputs, tolerance)
        return replace(result, model=again[0], max_error=max(result.max_error, again[1]))
    if isinstance(model, NNCFNetwork) and has_living_norms(model):
        plain = strip(without_hooks(model, NormHook), inplace=True)
        result = thinned(plain, living_norms=True, form=form)
        return _as_trained(result, model, inputs, tolerance)
    masked = strip(model) if isinstance(model, NNCFNetwork) else model
    work = _Work(masked, inputs, alignment, tolerance)
    if channels is None:
        how: dict[str, Any] = {"further_inputs": inputs[1:], "living_norms": living_norms}
        followed = analyze_channels(masked, inputs[0], **how)
        first = work.attempted(followed)
        if first is not None and (form == "class" or not work.may_gain(followed)):
            return first
        # the code holds a width, which trials find
        if form == "auto":
            freed = work.attempted(prunable_channels(masked, inputs[0], **how, form="auto"))
            if freed is not None:
                return freed
        channels = prunable_channels(masked, inputs[0], **how)
    check_fit(channels, work.tensors)
    return work.result(channels, explain=True)


def _inputs(
    model: nn.Module,
    example_inputs: ExampleInputs | None,
    further_inputs: Sequence[ExampleInputs],
) -> tuple[ExampleInputs, ...]:
    """Return all inputs; a wrapped model adds those with which it was traced as well."""
    first = inputs_for(model, example_inputs)
    own = model.nncf.further_inputs if isinstance(model, NNCFNetwork) else ()
    return (first, *further_inputs, *own)


def _without_quantizers(model: NNCFNetwork) -> nn.Module:
    """Return a copy without quantizers: a plain one, unless thinning needs its living norms."""
    copied = without_hooks(model, Quantizer)
    return copied if has_living_norms(copied) else strip(copied, inplace=True)


def _as_trained(
    result: ThinResult,
    model: NNCFNetwork,
    inputs: Sequence[ExampleInputs],
    tolerance: float | None,
) -> ThinResult:
    """Return the result, compared with a model whose norms see the living channels only.

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


@dataclass(frozen=True, eq=False)
class _Work:
    """A masked model, and how it is to be thinned."""

    masked: nn.Module
    inputs: Sequence[ExampleInputs]
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
            error = self._proven(removal, is_constant=selection.is_cut or not removal.entries)
        except NothingProven:
            raise
        except ThinningError as fault:
            if explain:
                raise self._explained(fault, removal) from fault
            raise
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
            unreached=channels.unreached,
            sizes=removal.sizes,
            entries=taken,
            parameters=(_count(self.masked), _count(removal.model)),
            channels=(total, total - sum(len(groups) for groups in selection.groups.values())),
            recipe=recipe,
        )

    def attempted(self, channels: Channels) -> ThinResult | None:
        """Return the result; None if the thinned model fails or differs.

        Raises:
            ThinningError: nothing is proven by the inputs.
        """
        try:
            return self.result(channels)
        except NothingProven:
            raise
        except ThinningError:
            return None

    def _proven(self, removal: Removal, *, is_constant: bool) -> float:
        """Return the largest relative error of a smaller model.

        Outputs may be the same for all inputs if `is_constant`: nothing passes some layer, or
        nothing was removed.

        Raises:
            ThinningError: it fails or differs, or nothing is proven.
        """
        first, *further = self.inputs
        with sized_on_the_way(removal.model, removal.sizes):
            try:
                error = verify(
                    self.masked,
                    removal.model,
                    first,
                    self.tolerance,
                    removal.dead,
                    further_inputs=further,
                )
            except ConstantOutputs as same:
                if not is_constant:
                    raise
                error = same.error
            if removal.entries and branches_on_training(self.masked):
                check_training(self.masked, removal.model, self.inputs)
        return error

    def may_gain(self, channels: Channels) -> bool:
        """Return whether something dead stays because of widths that stand in the code."""
        places = {place for each in channels.literals.values() for place in each}
        return any(
            has_dead_entries(one, self.tensors)
            for one in channels
            if one.fixed is not None and one.fixed_at in places
        )

    def _explained(self, fault: ThinningError, removal: Removal) -> ThinningError:
        address = first_divergence(self.masked, removal, self.inputs, self.tolerance)
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
