"""The description of a model in a file besides its tensors, and restoring a model from it.

It covers thinned modules, folded batch norms and quantizers, which tensors alone do not describe.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.errors import GraphError, NNCFXError, StorageError
from nncfx.network import NNCFNetwork, bake, strip
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.records import (
    check_axes,
    insertions_from,
    plan_records,
    quantizer_records,
)
from nncfx.quantization.grid.stored_weights import integer_weights
from nncfx.quantization.moved_weights import warn_moved_weights
from nncfx.quantization.packing.pack_weights import mark_packed
from nncfx.quantization.packing.parameters import (
    parameter_records,
    parameters_again,
    weight_shapes,
)
from nncfx.quantization.packing.records import packed_again, packed_records, packed_shapes
from nncfx.quantization.preparation.batch_norm_folding import folded_norms, without_norms
from nncfx.schemes.low_rank import factorize_again
from nncfx.storage.models.model_state import model_state
from nncfx.storage.models.module_sizes import ModuleSizes, apply_sizes, read_sizes
from nncfx.storage.models.stored_model import StoredModel, check_fit, fill, restored_on_error
from nncfx.thinning.files.recipe import ThinRecipe, rebuild, recipes_of
from nncfx.thinning.files.wrapped_again import call_counts, listed, warn_other_calls, wrapped
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.devices import device_of
from nncfx.tracing.calls.input_specs import describe_inputs
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.module_check import require_shapes
from nncfx.tracing.calls.preservation import drop_kept
from nncfx.tracing.hooks.dynamic_class import HookedModule, spec_of
from nncfx.tracing.hooks.store import STORE

_HOOKS: Final = f"{STORE}."


@dataclass(frozen=True, kw_only=True, eq=False)
class Described:
    """A model as stored in a file.

    Attributes:
        state: Name to tensor; for a weight stored as integers, the integers.
        sizes: Module name to size attribute to value.
        structure: Everything else that `restored` needs, as JSON values.
    """

    state: Mapping[str, Any]
    sizes: Mapping[str, ModuleSizes]
    structure: dict[str, Any]


def finished(model: nn.Module, *, constant: bool = True) -> nn.Module:
    """Return `model`, or a copy of it, with no hooks except quantizers.

    Masks and similar hooks are baked into the weights: the copy computes the same as the model.

    Args:
        model: Plain, or wrapped; not changed.
        constant: Whether quantizers stop learning.

    Raises:
        StorageError: another hook changes activations, or follows a quantizer.
    """
    if not isinstance(model, NNCFNetwork) or not model.nncf.hooks:
        return model
    hooks = [one.hook for one in model.nncf.hooks]
    quantizers = [one for one in hooks if isinstance(one, Quantizer)]
    if not quantizers:
        try:
            return strip(model)
        except NNCFXError as error:
            raise _refused(model, str(error)) from error
    if len(quantizers) < len(hooks):
        model = bake(model, but=(Quantizer,))
        _check_rest(model)
    elif constant and any(one.is_learned for one in quantizers):
        model = copy_of(model)
    for one in model.nncf.hooks if constant else ():
        if isinstance(one.hook, Quantizer) and one.hook.is_learned:
            one.hook.freeze()
    return model


def _check_rest(model: NNCFNetwork) -> None:
    for one in model.nncf.hooks:
        if not isinstance(one.hook, Quantizer):
            what = f"'{one.algorithm}' has a {type(one.hook).__name__} at {one.site}"
            raise _refused(model, what)


def _refused(model: nn.Module, why: str) -> StorageError:
    return StorageError(
        f"This {type(model).__name__} cannot be written as a finished model: "
        f"{why}. Write it while it is in training by nncfx.save(path, model, controller), or "
        "write what nncfx.thin(model).model returns."
    )


def describe(
    model: nn.Module, *, integers: bool = True, without: Collection[str] = ()
) -> Described:
    """Return the description of `model` for a file.

    Args:
        model: Plain, or with hooks that are quantizers, or of algorithms in `without`.
        integers: Whether to store integers instead of the floats of quantized weights.
        without: Algorithms whose hooks are rebuilt by other means.

    Raises:
        StorageError: a part of the model is wrapped instead of the model, or the model is part of
            a wrapped one.
    """
    _check_parts(model)
    state = model_state(model)
    recipes = recipes_of(model)
    has_graphs = any(one.forms for one in recipes)
    structure = _filled(
        thin_recipes=[json.loads(one.to_json()) for one in recipes if has_graphs],
        folded=folded_norms(model),
        packed_layers=packed_records(model),
        packed_parameters=parameter_records(model),
    )
    if isinstance(model, NNCFNetwork) and model.nncf.hooks:
        warn_moved_weights(model)
        structure["quantizers"] = quantizer_records(model, without=without)
        structure |= _filled(quantization_plans=plan_records(model, without=without))
        structure["example_inputs"] = describe_inputs(model.nncf.example_inputs)
        structure |= _filled(
            further_inputs=[describe_inputs(one) for one in model.nncf.further_inputs],
            calls=call_counts(model),
        )
        _spare(state, model)
        if integers:
            structure["integers"] = _with_integers(state, model)
    sizes = read_sizes(model)
    return Described(
        state=state,
        sizes={name: one for name, one in sizes.items() if not name.startswith(_HOOKS)},
        structure=structure,
    )


def _filled(**tables: Any) -> dict[str, Any]:  # noqa: ANN401 (lists and mappings of anything)
    """Return those of `tables` that are not empty."""
    return {name: one for name, one in tables.items() if one}


def _check_parts(model: nn.Module) -> None:
    for name, part in model.named_modules():
        if name and isinstance(part, NNCFNetwork) and part.nncf.hooks:
            raise StorageError(
                f"'{name}' of this {type(model).__name__} is wrapped and carries hooks, which a "
                "file of the whole model cannot describe. Save that part by itself, or wrap the "
                "whole model."
            )
    hooked = (one for one in model.modules() if isinstance(one, HookedModule))
    if not isinstance(model, NNCFNetwork) and any(spec_of(one).is_hooked for one in hooked):
        raise StorageError(
            f"This {type(model).__name__} is part of a wrapped model and carries its hooks, which "
            "a file of the part cannot describe. Save the whole model, and take the part of what "
            "nncfx.load returns."
        )


def _spare(state: dict[str, Any], model: NNCFNetwork) -> None:
    """Remove from `state` what a file need not store: zero points of 0, and schedules."""
    for key in model.nncf.carried_names & state.keys():
        del state[key]  # a finished model does not need it, and a checkpoint stores it elsewhere
    zeros = zero_keys(model)
    narrow = {id(value): _narrow(value) for value in zeros.values()}
    for key, value in zeros.items():
        if value.any():
            state[key] = narrow[id(value)]
        else:
            del state[key]


def _narrow(zeros: Tensor) -> Tensor:
    """Convert integers to one byte each, if they fit."""
    low, high = zeros.aminmax()
    for dtype in (torch.uint8, torch.int8):
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return zeros.to(dtype)
    return zeros


def _with_integers(state: dict[str, Any], model: NNCFNetwork) -> dict[str, Any]:
    """Replace quantized weights by integers in `state`; return a description of each."""
    tensors = model.state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for key, value in tensors.items():
        names.setdefault(id(value), []).append(key)
    entries = {}
    for name, (stored, hook) in integer_weights(model).items():
        if name in state:
            for same in names[id(tensors[name])]:
                state[same] = stored.values  # shared in the file, as in the model
            # a file stores shared tensors under their first name
            entries[name] = stored.described() | {"scale": names[id(hook.step)][0]}
            if names[id(hook.zero)][0] in state:
                entries[name]["zero_point"] = names[id(hook.zero)][0]
    return entries


def zero_keys(model: nn.Module) -> dict[str, Tensor]:
    """Return the zero points of quantizers by each of their `state_dict` keys.

    A file omits those that are 0 everywhere.
    """
    zeros = {id(one.zero) for one in model.modules() if isinstance(one, Quantizer)}
    if not zeros:
        return {}
    state = model.state_dict(keep_vars=True)
    return {key: value for key, value in state.items() if id(value) in zeros}


def restored(
    model: nn.Module,
    stored: StoredModel,
    *,
    example_inputs: ExampleInputs | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Return the model of a file, built from a fresh dense one.

    Args:
        model: Of the original class and sizes, or identical to the saved one. It is filled in
            place, or unchanged after an error; if modules have to become graphs, it is not changed
            and a new model is returned.
        stored: The file.
        example_inputs: Inputs for tracing if hooks have to be placed; built from the recorded
            shapes if missing.
        dtype: Cast floating tensors to this; by default each has the format of the file.

    Raises:
        StorageError: the file is damaged, or belongs to another model.
        ThinningError: its recipes belong to another model.
        ArgumentError: example inputs are needed.
        TracingError: the model cannot be traced.
    """
    require_shapes(model, "load")
    with restored_on_error(model):
        factorize_again(model, stored.shapes)
        if not (stored.structure or isinstance(model, NNCFNetwork)):
            check_fit(stored, model)
        made = reshaped(model, stored)
        tensors = stored.read()
        if not (isinstance(made, NNCFNetwork) and made.nncf.hooks):
            _take_known(made, tensors)
            made = hook_again(made, stored, example_inputs)
        zeros = zero_keys(made)
        further, carried = frozenset[str](), frozenset[str]()
        if isinstance(made, NNCFNetwork):
            further, carried = made.nncf.further_names, made.nncf.carried_names
        check_fit(stored, made, absent=carried.union(zeros), surplus=further | carried)
        absent = {key: torch.zeros_like(one) for key, one in zeros.items() if key not in tensors}
        # zero points can be stored in a narrower format
        whole = {key: tensors[key].to(one.dtype) for key, one in zeros.items() if key in tensors}
        fill(made, {**tensors, **whole, **absent}, dtype)
        drop_kept(made)
    warn_other_calls(made, stored)
    return made


def _take_known(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of a file that fit, in new memory, so an error can undo it.

    The trace that places hooks may read values, as the checks of distributions do, and weights
    whose sizes change have no values yet.
    """
    state = model_state(model, keep_vars=True)
    first = {id(own): name for name, own in reversed(state.items())}
    for name, own in state.items():
        is_known = name in tensors and tensors[name].shape == own.shape
        # a shared tensor can be two in the file; load it once, as this replaces its memory
        if is_known and first[id(own)] == name and not own.is_meta:
            own.data = tensors[name].to(own.device, own.dtype)


def reshaped(model: nn.Module, stored: StoredModel) -> nn.Module:
    """Return `model` with sizes, graphs and coded layers of a file, and batch norms folded."""
    structure = stored.structure
    recipes = [ThinRecipe.from_json(json.dumps(one)) for one in listed(structure, "thin_recipes")]
    folded = structure.get("folded", {})
    if not isinstance(folded, dict) or not all(isinstance(one, str) for one in folded.values()):
        raise StorageError(
            "The file is damaged: what it says of batch norms is not a table of names."
        )
    packed, codes = (structure.get(name, {}) for name in ("packed_layers", "packed_parameters"))
    if not (isinstance(packed, dict) and isinstance(codes, dict)):
        raise StorageError(
            "The file is damaged: its packed layers are not a table. Save it again."
        )
    seen = {name.rpartition(".")[0] for one in recipes for name, _ in one.removed}
    if recipes:
        model = copy_of(model)
    without_norms(model, {name: one for name, one in folded.items() if name not in seen})
    for recipe in recipes:
        model = rebuild(model, recipe)
    without_norms(model, folded)
    shapes = stored.shapes
    if not recipes:
        _resize(model, stored, shapes | packed_shapes(model, packed) | weight_shapes(codes))
    packed_again(model, packed, shapes)
    model = parameters_again(model, codes)
    if packed or codes:
        mark_packed(model)
    return model


def _resize(model: nn.Module, stored: StoredModel, found: Mapping[str, tuple[int, ...]]) -> None:
    """Apply the sizes of a file; tensors that do not fit at all are left to `check_fit`."""
    state = model.state_dict(keep_vars=True)
    shapes = {
        name: shape
        for name, shape in found.items()
        if isinstance(state.get(name), Tensor) and not name.startswith(_HOOKS)
    }
    grown = [
        name
        for name, shape in shapes.items()
        if len(shape) != state[name].dim()
        or any(new > old for new, old in zip(shape, state[name].shape, strict=True))
    ]
    if not grown:
        apply_sizes(model, stored.sizes, shapes)


def hook_again(
    model: nn.Module, stored: StoredModel, example_inputs: ExampleInputs | None = None
) -> nn.Module:
    """Return `model`, wrapped, with the quantizers of a file inserted again.

    Raises:
        StorageError: the model has no such operations.
    """
    records = listed(stored.structure, "quantizers")
    if not records:
        return model
    # no weight has more scales than elements, and an activation has one
    elements = sum(one.numel() for one in (*model.parameters(), *model.buffers()))
    plans = listed(stored.structure, "quantization_plans")
    insertions = insertions_from(records, plans, most=elements + len(records))
    if not isinstance(model, NNCFNetwork):
        model = wrapped(model, stored, example_inputs)
    try:
        model.nncf.register(insertions)
    except GraphError as error:
        raise StorageError(
            f"The file has a quantizer where the traced model has no operation. {error} Build "
            "the model as it was when the file was written: a new one, where a forward fills a "
            "cache. Where the number of operations depends on values, as in a loop with a stop "
            "rule, pass the example_inputs used then."
        ) from error
    check_axes(insertions, model)
    model.nncf.commit()
    device = device_of(model)
    for insertion in insertions:
        insertion.hook.to(device)
    return model
