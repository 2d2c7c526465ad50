"""Run a model without changing it or the random state."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, filterfalse, repeat
from operator import is_
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.storage.models.module_walk import all_modules, named_modules

_APART: Final = frozenset(("training", "_parameters", "_buffers", "_modules"))
"""Attributes that `preserved` restores, or that a forward is not expected to change."""
_TABLES: Final = (list, dict)
_TORCHS: Final = vars(nn.Module())
"""The attributes of every module, which are most of all attributes of a model."""
_HOOKS: Final = [
    key for key, one in _TORCHS.items() if isinstance(one, dict) and key not in _APART
]


@contextmanager
def preserved(model: nn.Module, *, train: bool = False) -> Iterator[None]:
    """Put `model` in evaluation (or training) mode and restore its state on exit.

    Restores the training flag of each module, buffers by value and identity, and the random state
    of the CPU and of the model's CUDA devices.
    """
    with _preserved(_modules(model), train=train):
        yield


def _modules(model: nn.Module) -> list[nn.Module]:
    return [module for _, module in all_modules(model)]


@contextmanager
def _preserved(modules: Sequence[nn.Module], *, train: bool) -> Iterator[None]:
    flags = [module.training for module in modules]
    buffers = [(module._buffers, dict(module._buffers)) for module in modules]  # noqa: SLF001 (rebinding must be seen)
    every = chain.from_iterable(own.values() for _, own in buffers)
    held = [one for one in every if one is not None]
    with torch.no_grad():
        dense = [one for one in held if one.layout == torch.strided and not one.is_meta]
        values = [(one, one.clone()) for one in dense]
    with torch.random.fork_rng(devices=_cuda_devices(modules, held)):
        try:
            _set_modes(modules, repeat(train))
            yield
        finally:
            _set_modes(modules, flags)
            for module, (table, own) in zip(modules, buffers, strict=True):
                # otherwise it became another module, such as a layer of codes
                if module._buffers is table:  # noqa: SLF001 (as above)
                    _fill(table, own)
            with torch.no_grad():
                for buffer, value in values:
                    # version counters do not help (batch norm does not change them), and writing
                    # to an unchanged buffer could break a pending backward pass
                    if not torch.equal(buffer, value):
                        buffer.copy_(value)


def _cuda_devices(modules: Sequence[nn.Module], buffers: Iterable[Tensor]) -> list[int]:
    """Return the CUDA devices of `buffers` and of the modules' parameters."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it so
        return []
    tables = [module._parameters.values() for module in modules]  # noqa: SLF001 (as above)
    tensors = chain((one for one in chain.from_iterable(tables) if one is not None), buffers)
    return sorted({one.device.index or 0 for one in tensors if one.device.type == "cuda"})


@contextmanager
def without_keeping(
    model: nn.Module, written: Iterable[str] = ()
) -> Iterator[Sequence[nn.Module]]:
    """Restore on exit the attributes that a forward changes in modules, including lists and dicts.

    Some models compute a value or register hooks in their first forward; flags that say so are
    restored too. Values that an earlier evaluation cached are dropped in the block, so the model
    computes them again from its weights. The values of the parameters `written`, such as those
    that a first forward rescales, are restored as well.

    Yields:
        The modules in the block.
    """
    modules = _modules(model)
    before = [(module, module.__dict__.copy()) for module in modules]
    # loops in C, since there are some twenty tables of hooks for each module, nearly all empty
    tables = [*chain.from_iterable([map(held.get, _HOOKS) for _, held in before])]
    tables += [
        held[name]
        for _, held in before
        for name in filterfalse(_TORCHS.__contains__, held)
        if isinstance(held[name], _TABLES)
    ]
    filled = [(one, one.copy()) for one in filter(None, tables)]
    empty = [*filterfalse(None, tables)]
    weights = [model.get_parameter(name) for name in written]
    values = [one.detach().clone() for one in weights]
    try:
        yield _modules(model) if _dropped_kept(model, modules) else modules
    finally:
        for weight, value in zip(weights, values, strict=True):
            weight.data.copy_(value)
        for module, held in before:
            _put_back(module.__dict__, held)
        for table, content in filled:
            _fill(table, content)
        for table in filter(None, empty):
            table.clear()


@contextmanager
def unchanged(model: nn.Module, *, train: bool) -> Iterator[Sequence[nn.Module]]:
    """Do all of `preserved`, `without_keeping` and `_without_moving`; yield the modules."""
    with (
        without_keeping(model) as modules,
        _without_moving(modules),
        _preserved(modules, train=train),
    ):
        yield modules


@contextmanager
def _without_moving(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Restore on exit the parameters and modules that a forward replaces, and `.data` it sets.

    VQ-VAE replaces codebooks that follow their data. Networks that fold their branches set
    `.data`, as SPAN does, or drop the folded layer in training. Nothing is copied, so in-place
    writes to parameters stay, and so do new modules.
    """
    held: list[Any] = [one._parameters for one in modules]  # noqa: SLF001 (as torch's own walk)
    tables = [(one, one.copy()) for one in held if isinstance(one, dict)]  # not of scripts
    below: list[Any] = [one._modules for one in modules]  # noqa: SLF001 (as above)
    children = [(one, one.copy()) for one in below if isinstance(one, dict) and one]
    every = chain.from_iterable(own.values() for _, own in tables)
    before = [(one, one.data) for one in every if type(one) is nn.Parameter]
    try:
        yield
    finally:
        for table, own in tables:
            _fill(table, own)
        for table, own in children:
            table.update({name: one for name, one in own.items() if one is not None})
        for parameter, data in before:
            if parameter.data_ptr() != data.data_ptr() or parameter.shape != data.shape:
                parameter.data = data


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause the collection of cyclic garbage.

    While a model is traced, collections would start often, because a graph keeps objects of each
    call, and walk the whole model: up to 7 % of the time. Tensors are freed without them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def drop_kept(model: nn.Module) -> None:
    """Let modules drop what they cached for evaluation, as they do at the start of training.

    Call this after weights change, since cached values are computed from them.
    """
    _dropped_kept(model, _modules(model))


def _dropped_kept(model: nn.Module, modules: Iterable[nn.Module]) -> bool:
    """Let modules drop caches; return whether any of `modules` may have done so."""
    if all(type(module).train is nn.Module.train for module in modules):
        return False
    # its own list also has the hooks of a wrapped model, which `train` sets too
    every = [module for _, module in named_modules(model)]
    modes = [module.training for module in every]
    model.train()
    _set_modes(every, modes)
    return True


def _set_modes(modules: Iterable[nn.Module], modes: Iterable[bool]) -> None:
    for module, mode in zip(modules, modes, strict=False):
        own = module.__dict__  # setting an attribute of a module takes ten times as long
        if "training" in own:
            own["training"] = mode
        else:  # a property
            module.training = mode


def _put_back(own: dict[str, Any], held: dict[str, Any]) -> None:
    """Restore a module's attributes to those `held`, except what is restored elsewhere."""
    # nearly all are unchanged; the comparison in C is fast for hundreds of modules
    if [*own] == [*held] and all(map(is_, own.values(), held.values())):
        return
    for name in own.keys() - _APART:
        if name not in held:
            del own[name]
        elif own[name] is not held[name]:
            own[name] = held[name]


def _fill(table: Any, content: Any) -> None:
    """Restore the content of a list or dict to the same objects as in `content`."""
    if (table or content) and not _is_same(table, content):
        table.clear()
        (table.update if isinstance(table, dict) else table.extend)(content)


def _is_same(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(key in other and other[key] is value for key, value in one.items())
    return all(a is b for a, b in zip(one, other, strict=True))
