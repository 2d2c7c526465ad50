"""Remove outputs of a model that a file cannot hold, such as caches."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from nncfx.errors import ExportError

_LOGGER = logging.getLogger(__name__)
_LEAVES: Final = (torch.Tensor, bool, int, float, complex, str, type(None))
_OBJECT: Final = (
    "Output '%s' of %s is a %s, which no file can hold, and is left out. If it is a cache of keys "
    "and values, the file computes one without: model.config.use_cache = False says the same."
)
_NUMBER: Final = "Output %s of %s is %r, not a tensor, and is left out of the file."


@contextlib.contextmanager
def writable_outputs(model: nn.Module, *, numbers: bool = True) -> Iterator[None]:
    """Leave out, inside the block, outputs of `model` that torch cannot flatten.

    For instance, a language model returns its cache of keys and values, an object of a special
    class, along with the logits. Omitted outputs are logged. A dataclass counts as a mapping of
    its fields, at any depth. If torch can flatten and name all outputs, they stay as they are;
    with `numbers=False`, numbers and strings among them are left out and logged as well.

    Raises:
        ExportError: when `model` is called and no output can be written.
    """
    told: set[str] = set()

    def tell(name: str, message: str, *details: object) -> None:
        if name not in told:
            told.add(name)
            _LOGGER.warning(message, name, type(model).__name__, *details)

    def leave_out(_: nn.Module, __: object, output: object) -> object:
        left = output if _is_writable(output) else _taken_apart(output, tell)
        if left is not output and not any(
            isinstance(one, torch.Tensor) for one in pytree.tree_leaves(left)
        ):
            raise ExportError(
                f"{type(model).__name__} returns a {type(output).__name__}, in which torch sees "
                "no tensor, so no file can hold it. Return tensors, in a tuple or a mapping, or "
                "register the class: torch.export.register_dataclass."
            )
        return left if numbers else pytree.tree_map_with_path(without_number, left)

    def without_number(path: tuple[Any, ...], leaf: object) -> object:
        if leaf is None or isinstance(leaf, torch.Tensor):
            return leaf
        tell(pytree.keystr(path), _NUMBER, leaf)
        return None

    with model.register_forward_hook(leave_out):
        yield


def _taken_apart(output: object, tell: Callable[..., None], *path: str) -> object:
    """Return an output as a mapping or tuple of those of its parts that a file can hold."""
    kept = {}
    for name, one in (_parts(output) or {}).items():
        if _is_writable(one):
            kept[name] = one
        elif _parts(one) is not None:
            kept[name] = _taken_apart(one, tell, *path, name)
        else:
            tell(".".join((*path, name)), _OBJECT, type(one).__name__)
    is_named = isinstance(output, Mapping) or is_dataclass(output)
    return kept if is_named else tuple(kept.values())


def _is_writable(value: object) -> bool:
    try:
        leaves = pytree.tree_flatten_with_path(value)[0]
    except ValueError:  # a class registered without key names, as in diffusers
        return False
    return all(isinstance(one, _LEAVES) for _, one in leaves)


def _parts(output: Any) -> dict[str, Any] | None:  # noqa: ANN401 (models return anything)
    """Return the parts of an output by name; None for an object that is not taken apart."""
    if isinstance(output, Mapping):
        return {str(name): one for name, one in output.items()}
    if is_dataclass(output):
        return {one.name: getattr(output, one.name) for one in fields(output)}
    if isinstance(output, tuple | list):
        return {str(index): one for index, one in enumerate(output)}
    return None
