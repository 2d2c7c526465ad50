"""Copy a model that keeps what an earlier forward computed, which torch refuses: `copy_of`.

House rule: what returns a model that it compressed leaves its argument alone, unless it is called
with `inplace=True`; `own_model` is that rule.
"""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from torch import fx, nn

from nncfx.errors import ArgumentError
from nncfx.storage.models.sharded_models import gathered, has_shards
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.module_walk import all_modules, all_tensors
from nncfx.tracing.calls.tensors import tensors_in

__all__ = ["copy_of", "keep_class_names", "own_model", "whole_model"]

_ModuleT = TypeVar("_ModuleT", bound=nn.Module)
_NOTHING: Final[Mapping[int, Any]] = MappingProxyType({})


def copy_of(model: _ModuleT, known: Mapping[int, Any] = _NOTHING) -> _ModuleT:
    """Return what `copy.deepcopy(model)` does; computed tensors come along, without their graph.

    The copy of a model that FSDP2 or tensor parallel has sharded is whole and plain.

    Such are the weight that `torch.nn.utils.weight_norm` makes, and caches of evaluation.

    Args:
        model: left as it is.
        known: `id` of an object in it to what stands in its place in the copy.

    Raises:
        TracingError: `model` is sharded or offloaded.

    >>> import torch
    >>> layer = nn.Linear(2, 2)
    >>> layer.cache = 2 * layer.bias
    >>> other = copy_of(layer)
    >>> torch.equal(other.cache, layer.cache), other.cache.requires_grad
    (True, False)
    """
    with gathered(model) as values:
        require_whole(model, "copied", is_only_run=True)
        # what has just been gathered is the copy's own
        return _copied(model, {**known, **{id(one): one for one in values}})


def _copied(model: _ModuleT, memo: dict[int, Any]) -> _ModuleT:
    for _, module in all_modules(model):
        for tensor in tensors_in(vars(module)):
            if not tensor.is_leaf and id(tensor) not in memo:
                memo[id(tensor)] = tensor.detach().clone()
    made = copy.deepcopy(model, memo)
    keep_class_names(model, memo)
    for one in all_tensors(model, "_parameters").values():
        if vars(one):  # torch leaves out what code has set there, as muP's `infshape`
            own = vars(memo.get(id(one), one))
            own.update({**vars(one), **own})
    return made


def keep_class_names(model: nn.Module, memo: Mapping[int, Any]) -> None:
    """Let copies of modules of torch.fx be of classes of the same names.

    Each has a class of its own, whose name torch does not copy and addresses are made of.

    Args:
        model: what was copied.
        memo: `id` of an object to its copy.
    """
    for _, module in all_modules(model):
        made = memo.get(id(module))
        if isinstance(module, fx.GraphModule) and isinstance(made, fx.GraphModule):
            type(made).__name__ = type(module).__name__


def whole_model(model: nn.Module) -> nn.Module:
    """Return a whole, plain copy of a sharded `model`, or `model` itself."""
    return copy_of(model) if has_shards(model) else model


def own_model(model: _ModuleT, *, inplace: bool) -> _ModuleT:
    """Return what a function may change: `model` itself if `inplace`, else a copy.

    Raises:
        ArgumentError: `model` holds something that cannot be copied.
        TracingError: it is sharded or offloaded.
    """
    if inplace:
        require_whole(model, "compressed")
        return model
    try:
        return copy_of(model)
    except (TypeError, NotImplementedError, RuntimeError) as error:
        raise ArgumentError(
            f"{type(model).__name__} cannot be copied ({error}), and the model that is passed "
            "stays as it is by default. Pass inplace=True to have it changed instead.",
        ) from error
