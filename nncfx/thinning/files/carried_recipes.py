"""Thin models carry the recipes that made them, so that a file of one can tell them."""

from collections.abc import Sequence
from typing import Final

from torch import fx, nn

from nncfx.thinning.files.recipe import ThinRecipe

__all__ = ["carry", "recipes_of"]

_ATTRIBUTE: Final = "_nncfx_thin_recipes"
_KEPT: Final = "_user_preserved_attributes"
"""The key of a graph module's `meta` under which torch looks for what a copy of it must have."""


def carry(model: nn.Module, recipes: Sequence[ThinRecipe]) -> None:
    """Let `model` and its copies know by which thinnings, in order, it came from the dense one."""
    vars(model)[_ATTRIBUTE] = tuple(recipes)
    if isinstance(model, fx.GraphModule):
        model.meta.setdefault(_KEPT, {})[_ATTRIBUTE] = tuple(recipes)


def recipes_of(model: nn.Module) -> tuple[ThinRecipe, ...]:
    """Return the thinnings that led to `model`, in their order; none where it carries none."""
    found: tuple[ThinRecipe, ...] = vars(model).get(_ATTRIBUTE, ())
    return found
