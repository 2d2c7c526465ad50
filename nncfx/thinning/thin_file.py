"""Files of thin models of which modules have become graphs: the recipes go with the weights.

What has only smaller tensors and integers needs none of this: `nncfx.storage` does it.
"""

import copy
import json
import os
from collections.abc import Sequence

from torch import nn

from nncfx.errors import StorageError
from nncfx.storage import SavedFile, TensorFile, load_state
from nncfx.storage import load as load_file
from nncfx.storage import save as save_file
from nncfx.storage.model_file import RECIPES
from nncfx.thinning.recipe import ThinRecipe, rebuild

__all__ = ["load_thinned", "save_thinned"]


def save_thinned(
    path: str | os.PathLike[str],
    model: nn.Module,
    recipes: Sequence[ThinRecipe],
    *,
    signed_zeros: bool = True,
) -> SavedFile:
    """Write a thin model as a `.nncfx` file that `load_thinned` makes the model of again.

    Args:
        path: The file; one that exists is replaced.
        model: What thinning returned.
        recipes: Of all the thinnings that led from the dense model to it, in their order.
        signed_zeros: False writes -0.0, of which masked weights are full, as 0.0.

    Raises:
        StorageError: As `nncfx.storage.save`.
    """
    if not any(one.forms for one in recipes):
        return save_file(path, model, signed_zeros=signed_zeros)
    steps = [json.loads(one.to_json()) for one in recipes]
    return save_file(path, model, signed_zeros=signed_zeros, metadata={RECIPES: steps})


def load_thinned(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Return the thin model that `save_thinned` wrote; a file without recipes loads as well.

    Args:
        path: A file that `save_thinned`, or `nncfx.storage.save`, wrote.
        model: Built by the original class with its original sizes; left as it is.

    Raises:
        StorageError: The file is damaged or hostile, or of another model.
        ThinningError: Its recipes are of another model.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> import torch
    >>> from nncfx.thinning import thin
    >>> dense = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    >>> dense[1].weight.data[:, 1:] = 0
    >>> result = thin(dense, torch.ones(1, 3))
    >>> path = Path(mkdtemp()) / "thin.nncfx"
    >>> size = save_thinned(path, result.model, [result.recipe]).size_bytes
    >>> load_thinned(path, dense)[0]
    Linear(in_features=3, out_features=1, bias=True)
    """
    with TensorFile(path) as file:
        steps = file.metadata.get(RECIPES, [])
    if not isinstance(steps, list):
        raise StorageError(f"{path} is damaged: its recipes are no list. Save the model anew.")
    if not steps:
        return load_file(path, copy.deepcopy(model))
    recipes = [ThinRecipe.from_json(json.dumps(step)) for step in steps]
    for recipe in recipes[:-1]:
        model = rebuild(model, recipe)
    return rebuild(model, recipes[-1], load_state(path))
