"""Copy a model as `copy.deepcopy` does, in less time.

Tensors that an earlier forward computed, which torch refuses to copy, are copied too.

Functions that return a compressed model do not change their argument unless called with
`inplace=True`; `own_model` implements this rule.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import filterfalse
from types import MappingProxyType
from typing import Any, Final, TypeVar

import torch
from torch import fx, nn

from nncfx.errors import ArgumentError
from nncfx.storage.models.module_walk import all_modules, all_tensors
from nncfx.storage.models.sharded_models import gathered, has_shards
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.tensors import tensors_in

_ModuleT = TypeVar("_ModuleT", bound=nn.Module)
_NOTHING: Final[Mapping[int, Any]] = MappingProxyType({})
_ATOMS: Final = frozenset(
    {bool, bytes, complex, float, int, str, type(None), type, torch.device, torch.dtype}
)
"""Immutable types, which a copy can share; most attributes of modules have one of them."""

_TABLES: Final = frozenset({dict, OrderedDict, set})

_HOOKS: Final = dict.fromkeys(
    name for name, one in vars(nn.Module()).items() if type(one) is OrderedDict
)
"""The names of the tables of hooks that every module has."""

_PLAIN: Final = (
    *("__reduce_ex__", "__reduce__", "__getstate__", "__deepcopy__"),
    *("__new__", "__slots__"),
)
"""The attributes by which a class customizes copying."""


def copy_of(model: _ModuleT, known: Mapping[int, Any] = _NOTHING) -> _ModuleT:
    """Return a deep copy of `model`, including computed tensors without their autograd graph.

    Computed tensors are, for instance, the weight of `torch.nn.utils.weight_norm` and caches for
    evaluation. The copy of a model sharded by FSDP2 or tensor parallelism is whole and plain.

    Args:
        model: stays unchanged.
        known: replacements in the copy by `id` of an object in `model`.

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
        # the copy takes over gathered tensors without copying them
        memo = {**known, **{id(one): one for one in values}}
        made = copied(model, memo)
        for one in all_tensors(model, "_parameters").values():
            if vars(one):  # torch does not copy attributes of parameters, such as muP's `infshape`
                own = vars(memo.get(id(one), one))
                own.update({**vars(one), **own})
        return made


def keep_class_names(model: nn.Module, memo: Mapping[int, Any]) -> None:
    """Give the classes of copied torch.fx modules the names of the original classes.

    Each module has its own class, whose name torch does not copy but addresses contain.

    Args:
        model: the original model.
        memo: copies by `id` of the original object.
    """
    for _, module in all_modules(model):
        made = memo.get(id(module))
        if isinstance(module, fx.GraphModule) and isinstance(made, fx.GraphModule):
            type(made).__name__ = type(module).__name__


def whole_model(model: nn.Module) -> nn.Module:
    """Return a whole, plain copy of a sharded `model`, or `model` itself."""
    return copy_of(model) if has_shards(model) else model


def own_model(model: _ModuleT, *, inplace: bool) -> _ModuleT:
    """Return a model that the caller may change: `model` itself if `inplace`, else a copy.

    Raises:
        ArgumentError: `model` contains an object that cannot be copied.
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
            "stays as it is by default. Pass inplace=True to have it changed instead."
        ) from error


def copied(model: _ModuleT, memo: dict[int, Any]) -> _ModuleT:
    """Return `copy.deepcopy(model, memo)`, including tensors of an earlier forward.

    Most attributes of modules are numbers and empty tables of hooks, which are copied directly.
    Other objects than these and plain modules are copied by `copy.deepcopy` with the same memo,
    so shared objects stay shared.

    Args:
        model: stays unchanged.
        memo: copies by `id` of the original object; new copies are added.
    """
    made: _ModuleT = _copy(model, memo)
    return made


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    known = memo.get(id(value))
    return _RULES.get(kind, _other)(value, memo) if known is None else known


def _mapping(value: dict[Any, Any], memo: dict[int, Any]) -> Any:
    if type(value) is OrderedDict and vars(value):  # it has attributes
        return _other(value, memo)
    table: dict[Any, Any] = type(value)()
    memo[id(value)] = table
    for key, one in value.items():
        table[_copy(key, memo)] = _copy(one, memo)
    return table


def _list(value: list[Any], memo: dict[int, Any]) -> list[Any]:
    items: list[Any] = []
    memo[id(value)] = items
    items += [_copy(one, memo) for one in value]
    return items


def _tuple(value: tuple[Any, ...], memo: dict[int, Any]) -> tuple[Any, ...]:
    if _ATOMS.issuperset(map(type, value)):  # sizes of kernels, strides
        return value
    parts = tuple([_copy(one, memo) for one in value])
    is_same = all(new is old for new, old in zip(parts, value, strict=True))
    return value if is_same else memo.setdefault(id(value), parts)


def _set(value: set[Any], memo: dict[int, Any]) -> Any:
    if not _ATOMS.issuperset(map(type, value)):
        return _other(value, memo)
    return memo.setdefault(id(value), set(value))


_RULES: Final[Mapping[type, Callable[[Any, dict[int, Any]], Any]]] = {
    dict: _mapping,
    OrderedDict: _mapping,
    list: _list,
    tuple: _tuple,
    set: _set,
}


def _other(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if isinstance(value, nn.Module) and _is_plain(kind.__mro__):
        module: Any = object.__new__(kind)
        memo[id(value)] = module
        module.__setstate__(_attributes(value, memo))
        return module
    if kind is nn.Parameter:
        return value.__deepcopy__(memo)
    if kind is torch.Tensor and _is_number(value):
        return _number(value, memo)
    # a class that copies itself also copies all modules in it
    is_module = isinstance(value, nn.Module)
    parts = all_modules(value) if is_module else ()
    for tensor in tensors_in([value, *(vars(module) for _, module in parts)]):
        # deepcopy refuses computed tensors, and tensors that are sparse by rows or columns
        is_refused = not tensor.is_leaf or tensor.layout != torch.strided
        if is_refused and id(tensor) not in memo:
            memo[id(tensor)] = tensor.detach().clone()
    made = copy.deepcopy(value, memo)
    if is_module:
        keep_class_names(value, memo)
    return made


def _is_number(value: torch.Tensor) -> bool:
    """Return whether a tensor is a number with its own memory, such as the counts of norms."""
    alone = not value.dim() and value.layout == torch.strided and not value.requires_grad
    return alone and value.untyped_storage().nbytes() == value.element_size()


def _number(value: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """Copy one number as `copy.deepcopy` would, at a hundredth of its cost."""
    storage = value.untyped_storage()
    copies = memo.setdefault("torch", {})  # torch's own table, which keeps shared memory shared
    if vars(value) or storage._cdata in copies:  # noqa: SLF001 (the key of that table)
        return copy.deepcopy(value, memo)
    made = memo[id(value)] = value.clone()
    copies[storage._cdata] = made.untyped_storage()  # noqa: SLF001 (as above)
    return made


def _attributes(module: nn.Module, memo: dict[int, Any]) -> dict[str, Any]:
    """Return copies of a module's attributes; most are numbers and empty tables."""
    state = vars(module).copy()
    names: Iterable[str] = [*state]
    tables = [*map(state.get, _HOOKS)]
    is_usual = not any(tables) and {*map(type, tables)} == {OrderedDict}
    if is_usual and memo.keys().isdisjoint(map(id, tables)):
        # half of all attributes; `any` and `map` look at them without a loop in Python
        made: list[OrderedDict[int, Any]] = [OrderedDict() for _ in tables]
        memo.update(zip(map(id, tables), made, strict=True))
        state.update(zip(_HOOKS, made, strict=True))
        names = filterfalse(_HOOKS.__contains__, names)
    for name in names:
        one = state[name]
        kind = type(one)
        if kind in _ATOMS:
            continue
        if kind in _TABLES and not (one or id(one) in memo or (kind is OrderedDict and vars(one))):
            state[name] = memo[id(one)] = kind()
        else:
            state[name] = _copy(one, memo)
    return state


@cache
def _is_plain(classes: tuple[type, ...]) -> bool:
    """Return whether `copy.deepcopy` would only create an object and copy its state."""
    kind = classes[0]
    return all(getattr(kind, name, None) is getattr(nn.Module, name, None) for name in _PLAIN)
