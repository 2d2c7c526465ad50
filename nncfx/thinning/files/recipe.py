"""A record of what thinning removed, to rebuild a thin model or thin an optimizer's state."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import fx, nn
from torch.optim import Optimizer

from nncfx.errors import ThinningError, did_you_mean, error_text
from nncfx.json_codec import decode, encode, load_object
from nncfx.storage.models.module_walk import all_modules, all_tensors
from nncfx.storage.models.narrow_attention import narrow_attention
from nncfx.thinning.forward.arguments import Arguments, from_plain, made_bytes, plain
from nncfx.thinning.forward.fx_graph import forward_graph
from nncfx.thinning.forward.graph_form import exchange
from nncfx.thinning.surgery import Cut, copy_without
from nncfx.tracing.calls.input_specs import MOST_BYTES

_FORMAT: Final = "nncfx thin recipe"
_VERSION: Final = 1
_ATTRIBUTE: Final = "_nncfx_thin_recipes"
_KEPT: Final = "_user_preserved_attributes"
"""The key of a graph module's `meta` for attributes that torch copies with it."""


@dataclass(frozen=True, kw_only=True)
class ThinRecipe:
    """How to get a thin model from the dense one; plain data, written as JSON.

    Attributes:
        model_class: name of the model's class, with its module.
        removed: (parameter or buffer, axis) to the indices removed along that axis, ascending.
        sizes: module name to the attributes that changed, with their new values.
        forms: modules that became graphs, with the arguments of their forwards; `sizes` has the
            changed integers of their code.
    """

    model_class: str
    removed: Mapping[tuple[str, int], tuple[int, ...]]
    sizes: Mapping[str, Mapping[str, int | tuple[int, ...]]]
    forms: Mapping[str, Arguments] = field(default_factory=dict)

    def __deepcopy__(self, _: dict[int, Any]) -> "ThinRecipe":
        """Return itself: models carry recipes, which never change, and indices are many."""
        return self

    def to_json(self) -> str:
        """Return the recipe as JSON text; `from_json` is the inverse."""
        content = _Content(
            model_class=self.model_class,
            removed=tuple(
                _Removed(tensor=name, axis=axis, entries=entries)
                for (name, axis), entries in self.removed.items()
            ),
            sizes=self.sizes,
            forms={
                name: {key: plain(value) for key, value in arguments.items()}
                for name, arguments in self.forms.items()
            },
        )
        head = {"format": _FORMAT, "version": _VERSION}
        return json.dumps(head | encode(content, omit="defaults"), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "ThinRecipe":
        """Return the recipe that `to_json` wrote.

        Raises:
            ThinningError: `text` is not a recipe, or has another version.
        """
        try:
            body = load_object(text, "recipe")
            kind, version = body.pop("format"), body.pop("version")
            if (kind, version) != (_FORMAT, _VERSION):
                raise ThinningError(
                    f"This is {kind!r:.60}, version {version!r:.60}; {_FORMAT!r}, version "
                    f"{_VERSION} is read here. Write it again."
                )
            content = decode(_Content, body)
            forms = {
                name: {key: from_plain(value) for key, value in arguments.items()}
                for name, arguments in content.forms.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ThinningError(
                f"The text is not a thin recipe: {error_text(error)}. Pass what "
                "ThinRecipe.to_json returned."
            ) from error
        removed = {(one.tensor, one.axis): one.entries for one in content.removed}
        return cls(
            model_class=content.model_class, removed=removed, sizes=content.sizes, forms=forms
        )


@dataclass(frozen=True, kw_only=True)
class _Removed:
    """The entries removed from one axis of one tensor, as stored in a file."""

    tensor: str
    axis: int
    entries: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _Content:
    """The content of a recipe file, without its format and version."""

    model_class: str
    removed: tuple[_Removed, ...]
    sizes: Mapping[str, Mapping[str, int | tuple[int, ...]]]
    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def rebuild(
    model: nn.Module,
    recipe: ThinRecipe,
    state_dict: Mapping[str, Any] | None = None,
    *,
    most_bytes: int = MOST_BYTES,
) -> nn.Module:
    """Return a thin copy of `model`, with the weights of a thin model if given.

    Args:
        model: built by the original class with its original sizes; not changed.
        recipe: what thinning removed.
        state_dict: that of the thin model. None: use the remaining weights of `model`.
        most_bytes: limit on memory for arguments when modules that became graphs are traced again.
            Their shapes come from the recipe, so an untrusted file could request any size.

    Raises:
        ThinningError: the recipe or the weights belong to another model, or the recipe asks for
            more than `most_bytes`.

    >>> from nncfx.thinning import thin
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    >>> model[1].weight.data[:, 1:] = 0
    >>> result = thin(model, torch.ones(1, 3))
    >>> recipe = ThinRecipe.from_json(result.recipe.to_json())
    >>> fresh = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    >>> rebuild(fresh, recipe, result.model.state_dict())[0]
    Linear(in_features=3, out_features=1, bias=True)
    """
    asked = {name: sum(map(made_bytes, each.values())) for name, each in recipe.forms.items()}
    if sum(asked.values()) > most_bytes:
        name = max(asked, key=lambda name: asked[name])
        raise ThinningError(
            f"To trace its modules again the recipe asks for arguments of {sum(asked.values()):,} "
            f"bytes, most of them for '{name}'; at most {most_bytes:,} are made. If you trust the "
            "recipe, pass most_bytes=, or thin with smaller example inputs."
        )
    forms = {
        name: forward_graph(model.get_submodule(name), arguments)
        for name, arguments in recipe.forms.items()
    }
    _check(model, recipe, {name: form.literals for name, form in forms.items()})
    entries = {key: np.array(gone, dtype=np.int64) for key, gone in recipe.removed.items()}
    thinned, _ = copy_without(model, entries)
    for name, sizes in recipe.sizes.items():
        values = {key: size for key, size in sizes.items() if isinstance(size, int)}
        literals = forms[name].literals if name in forms else {}
        for attribute in sizes.keys() - literals.keys():
            setattr(thinned.get_submodule(name), attribute, sizes[attribute])
        if literals:
            changed = {key: values[key] for key in literals.keys() & values.keys()}
            thinned = exchange(thinned, name, forms[name], changed)
    for module in thinned.modules():
        narrow_attention(module)
    if state_dict is not None:
        try:
            thinned.load_state_dict(state_dict)
        except RuntimeError as error:
            raise ThinningError(
                f"The weights are not those of this recipe's model: {error}. Pass the state_dict "
                "of the thinned model."
            ) from error
    return thinned


def carry(model: nn.Module, recipes: Sequence[ThinRecipe]) -> None:
    """Record in `model` and its copies the thinnings, in order, that led from the dense model."""
    vars(model)[_ATTRIBUTE] = tuple(recipes)
    if isinstance(model, fx.GraphModule):
        model.meta.setdefault(_KEPT, {})[_ATTRIBUTE] = tuple(recipes)


def recipes_of(model: nn.Module) -> tuple[ThinRecipe, ...]:
    """Return the thinnings that led to `model`, in order; empty if it carries none."""
    found: tuple[ThinRecipe, ...] = vars(model).get(_ATTRIBUTE, ())
    return found


def thin_optimizer(
    optimizer: Optimizer, model: nn.Module, thinned: nn.Module, recipe: ThinRecipe
) -> None:
    """Let an optimizer continue with the thinned model: its state shrinks, in place.

    Args:
        optimizer: holds parameters of `model`.
        model: the model before thinning, whose parameters the optimizer holds.
        thinned: the result of thinning.
        recipe: of that thinning.

    Raises:
        ThinningError: the optimizer has a parameter that is not of `model`, or a state tensor that
            has neither its parameter's shape nor a single element. Nothing is changed.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    new = dict(thinned.named_parameters(remove_duplicate=False))
    params = [one for group in optimizer.param_groups for one in group["params"]]
    if any(id(one) not in names for one in params):
        raise ThinningError(
            f"The {type(optimizer).__name__} trains a parameter that is not of the thinned "
            f"{type(model).__name__}. Pass the model whose parameters it was given."
        )
    cut = Cut({key: np.array(gone, dtype=np.int64) for key, gone in recipe.removed.items()})
    states: dict[torch.Tensor, Any] = {
        new[names[id(one)]]: _state(names[id(one)], one, optimizer.state[one], cut)
        for one in params
        if one in optimizer.state
    }
    for group in optimizer.param_groups:
        group["params"] = [new[names[id(one)]] for one in group["params"]]
    optimizer.state.clear()
    optimizer.state.update(states)


def _state(
    name: str, parameter: torch.Tensor, state: Mapping[str, Any], cut: Cut
) -> dict[str, Any]:
    if name not in cut.names:
        return dict(state)
    smaller = {}
    for key, value in state.items():
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
            smaller[key] = cut.kept(name, value)
        elif isinstance(value, torch.Tensor) and value.numel() > 1:
            raise ThinningError(
                f"The optimizer keeps {key!r} of shape {tuple(value.shape)} for '{name}' of "
                f"shape {tuple(parameter.shape)}; which part of it belongs to which channel is "
                "not known. Start the optimizer again with the thinned model's parameters."
            )
        else:
            smaller[key] = value
    return smaller


def _check(
    model: nn.Module, recipe: ThinRecipe, literals: Mapping[str, Mapping[str, int]]
) -> None:
    tensors, modules = all_tensors(model), dict(all_modules(model))
    for (name, axis), gone in recipe.removed.items():
        if name not in tensors:
            raise ThinningError(
                f"The recipe shrinks '{name}', which the model does not have."
                f"{did_you_mean(name, tensors)} Build the model from {recipe.model_class}."
            )
        shape = tuple(tensors[name].shape)
        if not 0 <= axis < len(shape) or (gone and not 0 <= min(gone) <= max(gone) < shape[axis]):
            raise ThinningError(
                f"The recipe removes entries up to {max(gone, default=0)} of axis {axis} of "
                f"'{name}', whose shape is {shape}. Build the model with its original sizes."
            )
    for name, sizes in recipe.sizes.items():
        there = [*vars(modules[name]), *literals.get(name, ())] if name in modules else []
        absent = [key for key in sizes if key not in there]
        if absent:
            raise ThinningError(
                f"The recipe sets {absent} of module '{name}', which has none. "
                f"Build the model from {recipe.model_class}."
            )
