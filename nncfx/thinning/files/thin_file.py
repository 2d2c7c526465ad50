"""Files of thin models with modules that became graphs: recipes are stored with the weights.

The result of thinning carries its recipes, so `nncfx.storage` writes and reads such files; these
two functions take the recipes as arguments, and do not change the dense model.
"""

import json
import os
from collections.abc import Sequence

from torch import nn

from nncfx.storage import SavedFile
from nncfx.storage import load as load_file
from nncfx.storage import save as save_file
from nncfx.thinning.files.recipe import ThinRecipe
from nncfx.tracing.calls.model_copy import copy_of


def save_thinned(
    path: str | os.PathLike[str],
    model: nn.Module,
    recipes: Sequence[ThinRecipe] = (),
    *,
    signed_zeros: bool = False,
) -> SavedFile:
    """Write a thin model as a `.nncfx` file, for `load_thinned`.

    Args:
        path: The file; an existing one is replaced.
        model: The result of thinning.
        recipes: All thinnings that led from the dense model to it, in order; by default those that
            the model carries, as the result of `thin` does.
        signed_zeros: True preserves -0.0, which is frequent in masked weights.

    Raises:
        StorageError: As `nncfx.storage.save`.
    """
    if not any(one.forms for one in recipes):
        return save_file(path, model, signed_zeros=signed_zeros)
    steps = [json.loads(one.to_json()) for one in recipes]
    return save_file(path, model, signed_zeros=signed_zeros, metadata={"thin_recipes": steps})


def load_thinned(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Return the model written by `save_thinned` or `nncfx.storage.save`.

    Args:
        path: The file.
        model: Built by the original class with its original sizes; not changed.

    Raises:
        StorageError: The file is damaged or hostile, or belongs to another model.
        ThinningError: Its recipes belong to another model.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> import torch
    >>> from nncfx.thinning import thin
    >>> dense = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    >>> dense[1].weight.data[:, 1:] = 0
    >>> result = thin(dense, torch.ones(1, 3))
    >>> path = Path(mkdtemp()) / "thin.nncfx"
    >>> size = save_thinned(path, result.model).size_bytes
    >>> load_thinned(path, dense)[0]
    Linear(in_features=3, out_features=1, bias=True)
    """
    return load_file(path, copy_of(model))
