"""Files of thin models of which modules have become graphs: the recipes go with the weights.

What thinning returned carries its recipes, so that `nncfx.storage` writes and reads such files;
these two take the recipes from elsewhere, and leave the dense model alone.
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
    """Write a thin model as a `.nncfx` file, from which `load_thinned` makes it again.

    Args:
        path: The file; one that exists is replaced.
        model: What thinning returned.
        recipes: Of all the thinnings that led from the dense model to it, in their order; by
            default those that the model carries, as what `thin` returns does.
        signed_zeros: True keeps -0.0, of which masked weights are full, apart from 0.0.

    Raises:
        StorageError: As `nncfx.storage.save`.
    """
    if not any(one.forms for one in recipes):
        return save_file(path, model, signed_zeros=signed_zeros)
    steps = [json.loads(one.to_json()) for one in recipes]
    return save_file(path, model, signed_zeros=signed_zeros, metadata={"thin_recipes": steps})


def load_thinned(path: str | os.PathLike[str], model: nn.Module) -> nn.Module:
    """Return the model that `save_thinned`, or `nncfx.storage.save`, wrote.

    Args:
        path: The file.
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
    >>> size = save_thinned(path, result.model).size_bytes
    >>> load_thinned(path, dense)[0]
    Linear(in_features=3, out_features=1, bias=True)
    """
    return load_file(path, copy_of(model))
