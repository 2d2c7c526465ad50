"""Copies a model without some entries of its parameters and buffers."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from nncfx.storage.models.module_walk import all_modules, all_tensors
from nncfx.storage.models.narrow_attention import narrow_attention
from nncfx.tracing.calls.model_copy import copied
from nncfx.tracing.calls.preservation import drop_kept
from nncfx.tracing.calls.tensors import own_tensors
from nncfx.tracing.record.meta_weights import zeros

Sizes = dict[str, int | tuple[int, ...]]

_NOTHING: Final[Mapping[str, torch.Tensor]] = MappingProxyType({})


def copy_without(
    model: nn.Module,
    entries: Mapping[tuple[str, int], npt.NDArray[np.int64]],
    baked: Mapping[str, torch.Tensor] = _NOTHING,
) -> tuple[nn.Module, dict[str, Sizes]]:
    """Return a copy of `model` without entries of its tensors, with the sizes that changed.

    Tensors that modules share remain shared. Removed entries are never copied.

    Args:
        model: not changed.
        entries: (name of a parameter or buffer, axis) to the entries to remove.
        baked: tensors that replace those of `model` in the copy, by name; accessed one by one.

    Returns:
        The copy, and module name to the attributes that changed with their new values.
    """
    tensors, cut = all_tensors(model), Cut(entries)
    # deepcopy takes existing entries from its memo, so shrunk tensors are used in all places
    memo: dict[int, Any] = {}
    for name in cut.names:
        own = tensors[name]
        memo[id(own)] = _alike(own, cut.kept(name, baked.get(name, own).detach()))
    touched = set(map(id, memo.values()))
    for name in baked:
        own = tensors[name]
        if id(own) not in memo:
            value = baked[name]
            is_own = value.untyped_storage().data_ptr() == own.untyped_storage().data_ptr()
            memo[id(own)] = _alike(own, value.clone() if is_own else value)
    smaller_model = copied(model, memo)
    return smaller_model, resize(smaller_model, touched)


def shapes_without(
    model: nn.Module, entries: Mapping[tuple[str, int], npt.NDArray[np.int64]]
) -> tuple[nn.Module, dict[str, Sizes]]:
    """Return the result of `copy_without` with zeros in shrunk tensors, for shape-only runs.

    It takes no memory: the zeros take none, and every other tensor is that of `model` itself.
    """
    tensors, cut = all_tensors(model), Cut(entries)
    smaller = {
        id(own): _alike(own, zeros(cut.shape(name, own.shape), own.dtype))
        for name, own in ((name, tensors[name]) for name in cut.names)
    }
    smaller_model = copied(model, {**{id(one): one for one in tensors.values()}, **smaller})
    return smaller_model, resize(smaller_model, set(map(id, smaller.values())))


def cut_in_place(
    model: nn.Module,
    entries: Mapping[tuple[str, int], npt.NDArray[np.int64]],
    baked: Mapping[str, torch.Tensor] = _NOTHING,
) -> set[int]:
    """Remove entries of the tensors of `model` itself, one tensor at a time.

    Each old tensor is freed before the next new one is created. Parameters remain the same
    objects, with another shape and without a gradient.

    Args:
        model: changed; its modules keep their sizes (`resize`).
        entries: (name of a parameter or buffer, axis) to the entries to remove.
        baked: tensors that replace those of `model`, by name; accessed one by one.

    Returns:
        `id`s of the tensors whose shape changed.
    """
    tensors = all_tensors(model)
    cut = Cut(entries)
    done: set[int] = set()
    for name in cut.names:
        own = tensors[name]
        own.grad = None
        own.data = cut.kept(name, baked.get(name, own).detach())
        done.add(id(own))
    rest = {id(tensors[name]): name for name in baked if id(tensors[name]) not in done}
    for name in rest.values():
        value = baked[name]
        if value.untyped_storage().data_ptr() != tensors[name].untyped_storage().data_ptr():
            tensors[name].data.copy_(value)
    return done


class Cut:
    """Removes entries of tensors."""

    def __init__(self, entries: Mapping[tuple[str, int], npt.NDArray[np.int64]]) -> None:
        self._axes: dict[str, dict[int, npt.NDArray[np.int64]]] = {}
        # rows first, so that fewer elements remain to be copied for the columns
        for (name, axis), removed in sorted(entries.items(), key=lambda one: one[0][1]):
            self._axes.setdefault(name, {})[axis] = removed
        self._stays: dict[tuple[int, int, torch.device], torch.Tensor] = {}

    @property
    def names(self) -> list[str]:
        """Return the tensors that lose entries."""
        return list(self._axes)

    def kept(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor without its removed entries."""
        for axis, removed in self._axes[name].items():
            # several axes can lose the same entries, which are then one array
            key = (id(removed), tensor.shape[axis], tensor.device)
            if key not in self._stays:
                stays = np.ones(tensor.shape[axis], dtype=bool)
                stays[removed] = False
                self._stays[key] = torch.from_numpy(np.flatnonzero(stays)).to(tensor.device)
            tensor = tensor.index_select(axis, self._stays[key])
        return tensor

    def shape(self, name: str, shape: Sequence[int]) -> list[int]:
        """Return the shape of a tensor of `shape` without its removed entries."""
        sizes = list(shape)
        for axis, removed in self._axes[name].items():
            sizes[axis] -= len(removed)
        return sizes


def resize(model: nn.Module, touched: Collection[int]) -> dict[str, Sizes]:
    """Set the sizes that modules store besides tensors of new shapes, and return the changes.

    Values that modules cache for evaluation are dropped.

    Args:
        model: changed in place.
        touched: `id`s of the tensors.
    """
    drop_kept(model)
    changed = {}
    for name, module in all_modules(model):
        if any(id(tensor) in touched for tensor in _own(module)):
            sizes = _resize(module)
            if sizes:
                changed[name] = sizes
    return changed


def narrow_widths(
    model: nn.Module, falls: Mapping[tuple[str, str], int], sizes: dict[str, Sizes]
) -> None:
    """Lower the integers of modules that count channels, in place.

    A module whose class cannot hold the new widths gets another class.

    Integers that follow from a tensor's shape were set with it and are not changed.

    Args:
        model: a thinned copy.
        falls: (module, attribute) to the number of channels that went.
        sizes: sizes set so far; updated with the changes.
    """
    for (name, attribute), fall in falls.items():
        module = model.get_submodule(name)
        if fall and attribute not in sizes.get(name, {}):
            value: int = vars(module)[attribute] - fall
            setattr(module, attribute, value)
            sizes.setdefault(name, {})[attribute] = value
    for _, module in all_modules(model):
        narrow_attention(module)


@contextmanager
def sized_on_the_way(model: nn.Module, sizes: dict[str, Sizes]) -> Iterator[None]:
    """Let norms without tensors update their width in the next forward.

    Args:
        model: changed in place by the forward.
        sizes: updated with the changes.
    """

    def learn(name: str, module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        (attribute, axis), data = _BARE[type(module)], args[0]
        if vars(module)[attribute] != data.shape[axis]:
            vars(module)[attribute] = data.shape[axis]
            sizes.setdefault(name, {})[attribute] = data.shape[axis]

    with ExitStack() as hooks:
        for name, module in all_modules(model):
            if type(module) in _BARE and not _own(module):
                hooks.enter_context(module.register_forward_pre_hook(partial(learn, name)))
        yield


def _own(module: nn.Module) -> list[torch.Tensor]:
    """Return the tensors of a module itself, and those that its tensors are computed from."""
    own = list(own_tensors(module).values())
    if type(module) in _SIZES or not is_parametrized(module):  # the latter has a generated class
        return own
    return [*own, *module.get_submodule("parametrizations").parameters()]


def _alike(tensor: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Return `new` as a parameter or a buffer, like `tensor`."""
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(new, requires_grad=tensor.requires_grad)
    return new


def _resize(module: nn.Module) -> Sizes:
    """Set the sizes that a module stores besides its tensors, and return the changes."""
    found = (sizes for kind, sizes in _SIZES.items() if isinstance(module, kind))
    rule = next(found, None)
    if rule is None:
        return {}
    wanted = rule(module)
    changed = {name: new for name, new in wanted.items() if getattr(module, name) != new}
    for name, value in changed.items():
        setattr(module, name, value)
    return changed


_SOURCES: Final = ("weight_v", "weight_orig")
"""The tensors from which torch's older weight norm, spectral norm and pruning compute a weight."""


def _weight(module: nn.Module) -> torch.Tensor:
    """Return the weight; if a hook recomputes it in every forward, its source of equal shape."""
    own = module._parameters  # noqa: SLF001 (as torch's own walk)
    weight = next((own[one] for one in _SOURCES if own.get(one) is not None), module.weight)
    assert isinstance(weight, torch.Tensor)  # noqa: S101 (a module with sizes has a weight)
    return weight


def _conv(of_rows: str, of_columns: str, module: nn.Module) -> Sizes:
    """Return the sizes of a convolution; groups are removed whole, so each keeps its rows."""
    rows, columns = _weight(module).shape[:2]
    before = vars(module)
    groups = 1 if before["groups"] == 1 else rows * before["groups"] // before[of_rows]
    return {of_rows: rows, of_columns: columns * groups, "groups": groups}


def _linear(module: nn.Module) -> Sizes:
    rows, columns = _weight(module).shape
    return {"out_features": rows, "in_features": columns}


def _features(module: nn.Module) -> Sizes:
    return {"num_features": next(len(tensor) for tensor in _own(module) if tensor.dim() == 1)}


_SIZES: Mapping[type[nn.Module], Callable[[nn.Module], Sizes]] = {
    **dict.fromkeys(
        (nn.Conv1d, nn.Conv2d, nn.Conv3d), partial(_conv, "out_channels", "in_channels")
    ),
    **dict.fromkeys(
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
        partial(_conv, "in_channels", "out_channels"),
    ),
    nn.Linear: _linear,
    **dict.fromkeys(
        (
            *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
            *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        ),
        _features,
    ),
    **dict.fromkeys(
        (nn.LayerNorm, nn.RMSNorm),
        lambda module: {"normalized_shape": tuple(_weight(module).shape)},
    ),
    nn.GroupNorm: lambda module: {"num_channels": len(_weight(module))},
    nn.PReLU: lambda module: {"num_parameters": len(_weight(module))},
    nn.Embedding: lambda module: {"embedding_dim": _weight(module).shape[1]},
    nn.EmbeddingBag: lambda module: {"embedding_dim": _weight(module).shape[1]},
}
"""How each torch.nn type stores its sizes; all other types have none besides their tensors."""


_BARE: Mapping[type[nn.Module], tuple[str, int]] = {
    nn.InstanceNorm1d: ("num_features", -2),
    nn.InstanceNorm2d: ("num_features", -3),
    nn.InstanceNorm3d: ("num_features", -4),
    nn.GroupNorm: ("num_channels", 1),
}
"""Norms that can be without tensors: their size, and the input axis that has it."""
