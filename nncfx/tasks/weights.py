"""Loads weights from a file of any origin into a model, without executing code in the file."""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from nncfx.errors import StorageError, error_text, machine_fault
from nncfx.storage.formats.container import is_container
from nncfx.storage.formats.whole_file import check_source
from nncfx.storage.models.checkpoint_file import KEY
from nncfx.storage.models.model_state import model_state
from nncfx.training import load

_WRAPPERS: Final = ("state_dict", "model", "model_state_dict", "state_dict_ema", "module")
"""The keys under which training scripts store weights next to optimizer and epoch."""


def load_weights(model: nn.Module, path: str | Path) -> nn.Module:
    """Return `model` with the weights of a `.nncfx`, safetensors or torch file.

    Files of nncfx also restore changes to the model: thinned widths, quantizers.

    Raises:
        StorageError: the file is invalid, or its tensors do not fit; up to ten names are listed.
    """
    path = Path(path)
    check_source(path)
    if is_ours(path):
        return load(path, model)[1]
    state = state_in(path)
    wanted = model_state(model)
    shapes = {
        name: (tuple(state[name].shape), tuple(wanted[name].shape))
        for name in wanted
        if name in state and state[name].shape != wanted[name].shape
    }
    missing = [name for name in wanted if name not in state]
    surplus = [name for name in state if name not in wanted]
    if missing or surplus or shapes:
        lines = [
            *(f"  missing in the file: {name}" for name in missing[:10]),
            *(f"  not in the model: {name}" for name in surplus[:10]),
            *(f"  {name}: {was} in the file, {is_} in the model" for name, (was, is_) in
              list(shapes.items())[:10]),
        ]  # fmt: skip
        count = len(missing) + len(surplus) + len(shapes)
        raise StorageError(
            f"'{path}' does not fit {type(model).__name__} in {count} names; build the model that "
            "it was written from.\n" + "\n".join(lines)
        )
    model.load_state_dict(state)
    return model


def state_in(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a safetensors or torch file by name.

    Raises:
        StorageError: it is neither, or contains something other than tensors.
    """
    try:
        if path.suffix in (".safetensors", ".st"):
            return load_file(path)
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        if machine_fault(error) is not None and not isinstance(error, OSError):
            raise
        raise StorageError(
            f"'{path}' holds no weights that can be read without running code "
            f"({_reason(error, path)}). Write it with torch.save(model.state_dict(), path), or "
            "as safetensors."
        ) from error
    for key in _WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(
        isinstance(one, torch.Tensor) for one in found.values()
    ):
        raise StorageError(
            f"'{path}' holds no state_dict: its values are not all tensors. Write it with "
            "torch.save(model.state_dict(), path)."
        )
    return {str(name).removeprefix("module."): one for name, one in found.items()}


def _reason(error: Exception, path: Path) -> str:
    """Return what is wrong with a file, instead of torch's advice to run its code."""
    if path.is_file() and not path.stat().st_size:
        return "it is empty"
    found = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
    if found:
        return f"it is a pickle of objects, such as {found.group(1)}"
    if isinstance(error, pickle.UnpicklingError):
        return "it is not a file of torch.save"
    text = str(error).strip() or error_text(error)
    return text.partition("\n")[0].rstrip(".:")


def is_ours(path: Path) -> bool:
    """Return whether nncfx wrote the file, so that it may contain integers."""
    if is_container(path):
        return True
    try:  # for any extension, since nncfx.save accepts all
        with safe_open(path, "pt") as file:
            return KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False
