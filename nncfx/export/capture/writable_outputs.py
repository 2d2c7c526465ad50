"""Remove outputs of a model that a file cannot hold, such as caches."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from nncfx.errors import ExportError

_LOGGER = logging.getLogger(__name__)
_LEAVES: Final = (torch.Tensor, bool, int, float, complex, str, type(None))


@contextlib.contextmanager
def writable_outputs(model: nn.Module, *, numbers: bool = True) -> Iterator[None]:
    """Leave out, inside the block, outputs of `model` that torch cannot flatten.

    For instance, a language model returns its cache of keys and values, an object of a special
    class, along with the logits. Omitted outputs are logged. A dataclass counts as a mapping of
    its fields. If torch can flatten and name all outputs, they stay as they are; with
    `numbers=False`, numbers and strings among them are left out and logged as well.

    Raises:
        ExportError: when `model` is called and no output can be written.
    """
    told: set[str] = set()

    def leave_out(_: nn.Module, __: object, output: object) -> object:
        if _is_writable(output):
            return output if numbers else pytree.tree_map_with_path(without_number, output)
        parts = _parts(output)
        kept = {name: one for name, one in parts.items() if _is_writable(one)}
        if not any(isinstance(one, torch.Tensor) for one in pytree.tree_leaves(kept)):
            raise ExportError(
                f"{type(model).__name__} returns a {type(output).__name__}, in which torch sees "
                "no tensor, so no file can hold it. Return tensors, in a tuple or a mapping, or "
                "register the class: torch.export.register_dataclass."
            )
        for name in parts.keys() - kept.keys() - told:
            told.add(name)
            _LOGGER.warning(
                "Output '%s' of %s is a %s, which no file can hold, and is left out. If it is a "
                "cache of keys and values, the file computes one without: "
                "model.config.use_cache = False says the same.",
                name,
                type(model).__name__,
                type(parts[name]).__name__,
            )
        is_named = isinstance(output, Mapping) or is_dataclass(output)
        left = kept if is_named else tuple(kept.values())
        return left if numbers else pytree.tree_map_with_path(without_number, left)

    def without_number(path: tuple[Any, ...], leaf: object) -> object:
        if leaf is None or isinstance(leaf, torch.Tensor):
            return leaf
        name = pytree.keystr(path)
        if name not in told:
            told.add(name)
            _LOGGER.warning(
                "Output %s of %s is %r, not a tensor, and is left out of the file.",
                name,
                type(model).__name__,
                leaf,
            )
        return None

    with model.register_forward_hook(leave_out):
        yield


def _is_writable(value: object) -> bool:
    try:
        leaves = pytree.tree_flatten_with_path(value)[0]
    except ValueError:  # a class registered without key names, as in diffusers
        return False
    return all(isinstance(one, _LEAVES) for _, one in leaves)


def _parts(output: Any) -> dict[str, Any]:  # noqa: ANN401 (models return anything)
    if isinstance(output, Mapping):
        return {str(name): one for name, one in output.items()}
    if is_dataclass(output):
        return {one.name: getattr(output, one.name) for one in fields(output)}
    if isinstance(output, tuple | list):
        return {str(index): one for index, one in enumerate(output)}
    return {"output": output}
