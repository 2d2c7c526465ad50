"""Run a model for information only: leave it and the random state as they were."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import is_
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.tracing.calls.module_walk import all_modules

_APART: Final = frozenset(("training", "_parameters", "_buffers", "_modules"))
"""What `preserved` puts back, and what a forward is not expected to change."""
_TABLES: Final = (list, dict)
_TORCHS: Final = vars(nn.Module())
"""What every module has: with hundreds of modules it is most of all attributes."""
_HOOKS: Final = [
    key for key, one in _TORCHS.items() if isinstance(one, dict) and key not in _APART
]


@contextmanager
def preserved(model: nn.Module, *, train: bool = False) -> Iterator[None]:
    """Put `model` in evaluation (or training) mode and, at the end, all as it was.

    Training flags are restored module by module, buffers by value and by identity, and the
    random state of the CPU and of the model's CUDA devices.
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
            for module in modules:
                if module.training is not train:  # a module takes long to set anything
                    module.training = train
            yield
        finally:
            for module, flag, (table, own) in zip(modules, flags, buffers, strict=True):
                if module.training is not flag:
                    module.training = flag
                # else it became another module, such as a layer of codes
                if module._buffers is table:  # noqa: SLF001 (as above)
                    _fill(table, own)
            with torch.no_grad():
                for buffer, value in values:
                    # versions do not tell (batch norm leaves them alone), and writing to a buffer
                    # that did not change could break a backward pass that is still to come
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
    """Put back, at the end, what a forward keeps in attributes of modules, lists and dicts too.

    Some models compute a value or register hooks in their first forward. What says that these
    are there (a flag, the shape that a value is for) goes with them. What an earlier evaluation
    kept is not there in the block: the model computes it from its weights again. So do the
    values of the parameters `written`, such as those that a first forward rescales.

    Yields:
        The modules that are there in the block.
    """
    modules = _modules(model)
    before = [(module, module.__dict__.copy()) for module in modules]
    tables = [one for _, held in before for one in map(held.get, _HOOKS)]
    tables += [
        one
        for _, held in before
        for name, one in held.items()
        if name not in _TORCHS and isinstance(one, _TABLES)
    ]
    filled = [(one, one.copy()) for one in tables if one]
    empty = [one for one in tables if not one]  # nearly all: those of hooks
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
    """Put back, at the end, parameters and modules that a forward replaces, and `.data` it sets.

    Codebooks that follow their data are replaced, as in VQ-VAE; networks that fold their branches
    set `.data`, as SPAN, or drop in training the layer that evaluation made of them. Nothing is
    copied; what is written to the memory of a parameter stays, and so do modules that are new.
    """
    held: list[Any] = [one._parameters for one in modules]  # noqa: SLF001 (as torch's own walk)
    tables = [(one, one.copy()) for one in held if isinstance(one, dict)]  # a script has another
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


def drop_kept(model: nn.Module) -> None:
    """Let modules drop what they keep for evaluation, as they do at the start of training.

    What they computed from weights is of no use any more when these are others.
    """
    _dropped_kept(model, _modules(model))


def _dropped_kept(model: nn.Module, modules: Iterable[nn.Module]) -> bool:
    """Return whether one of the `modules` may have done so."""
    if all(type(module).train is nn.Module.train for module in modules):
        return False
    modes = {module: module.training for module in model.modules()}  # hooks, too
    model.train()
    for module, mode in modes.items():
        if module.training is not mode:  # a module takes long to set anything
            module.training = mode
    return True


def _put_back(own: dict[str, Any], held: dict[str, Any]) -> None:
    """Let a module's attributes be those `held` again, but for what is put back elsewhere."""
    # nearly all are: compared in C, since hundreds of modules have dozens each
    if [*own] == [*held] and all(map(is_, own.values(), held.values())):
        return
    for name in own.keys() - _APART:
        if name not in held:
            del own[name]
        elif own[name] is not held[name]:
            own[name] = held[name]


def _fill(table: Any, content: Any) -> None:
    """Let a list or dict hold `content` again, the very objects."""
    if (table or content) and not _is_same(table, content):
        table.clear()
        (table.update if isinstance(table, dict) else table.extend)(content)


def _is_same(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, dict):
        return all(key in other and other[key] is value for key, value in one.items())
    return all(a is b for a, b in zip(one, other, strict=True))
