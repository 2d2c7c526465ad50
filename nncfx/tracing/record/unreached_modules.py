"""Find modules that no example reaches, and the tensors that their callers could pass them."""

import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any, Final

import torch
from torch import nn

from nncfx.storage.models.module_walk import all_modules, all_tensors, first_names
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.hooks.dynamic_class import original_class

_BY_OTHER_WAYS: Final = frozenset(
    {"_modules", "children", "get_submodule", "getattr", "modules", "named_children"}
)
"""Names in code that may call modules without mentioning the modules' names."""

_CONTAINERS: Final = (nn.ModuleDict, nn.ModuleList, nn.ParameterDict, nn.ParameterList)


def unreached(model: nn.Module, read: Collection[str]) -> dict[str, str | None]:
    """Return the modules whose parameters are all unread, each with the module that calls it.

    Of nested modules the outermost is returned. An unread parameter of a module with read
    parameters is returned by itself. The caller is None if the module of such a parameter has no
    children, because it is then a layer that was reached, and if no code of the parent module
    mentions the name, because then nothing calls the module.

    Args:
        model: any module.
        read: the parameters that were read, by their first names.
    """
    parameters = all_tensors(model, "_parameters")
    every = all_modules(model, every_name=True)
    first = first_names(every)
    unread = [
        name for name, one in parameters.items() if one.numel() and first[id(one)] not in read
    ]
    if not unread:
        return {}
    alive = {around for name in parameters.keys() - set(unread) for around in _around(name)}
    modules = dict(every)
    found: dict[str, str | None] = {}
    for name in unread:
        top = next((one for one in _around(name) if one not in alive), name)
        caller = top.rpartition(".")[0]
        if top == name and not modules[caller]._modules:  # noqa: SLF001 (as torch's own walk)
            found[name] = None
            continue
        while caller and isinstance(modules[caller], (*_CONTAINERS, nn.Sequential)):
            caller = caller.rpartition(".")[0]
        own = top.removeprefix(f"{caller}." if caller else "").partition(".")[0]
        names = _names(original_class(modules[caller]).__mro__)
        found[top] = None if names.isdisjoint({own, *_BY_OTHER_WAYS}) else caller
    return found


def _around(name: str) -> list[str]:
    """Return the names of the modules around a parameter, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


@contextmanager
def passed_around(
    model: nn.Module, callers: Mapping[str, str], see: Callable[[torch.Tensor, str], None]
) -> Iterator[None]:
    """Within the context, report every tensor that enters or leaves a call in a caller's code.

    Args:
        model: any module.
        callers: texts by dotted name of a module.
        see: called with a tensor and the text.
    """
    running: set[nn.Module] = set()  # sequences, whose inner tensors the caller cannot see

    def tell(text: str, around: Collection[nn.Module], values: Any) -> None:
        if running.isdisjoint(around):
            for tensor in tensors_in(values):
                see(tensor, text)

    with ExitStack() as hooks:
        for name, text in callers.items():
            caller = model.get_submodule(name)
            hooks.callback(_before(caller, partial(tell, text, ())))
            for called, around in _called_in(caller):
                if isinstance(called, nn.Sequential):
                    hooks.callback(_before(called, partial(_add, running, called)))
                    hooks.callback(_behind(called, partial(_drop, running, called)))
                hooks.callback(_behind(called, partial(tell, text, around)))
        yield


def _before(module: nn.Module, see: Callable[[Any], None]) -> Callable[[], None]:
    """Report a module's arguments; return a function that stops this."""
    return module.register_forward_pre_hook(
        lambda _, args, kwargs: see((args, kwargs)), with_kwargs=True
    ).remove


def _behind(module: nn.Module, see: Callable[[Any], None]) -> Callable[[], None]:
    """Report a module's results; return a function that stops this."""
    return module.register_forward_hook(lambda _, __, result: see(result)).remove


def _add(running: set[nn.Module], module: nn.Module, _: object) -> None:
    running.add(module)


def _drop(running: set[nn.Module], module: nn.Module, _: object) -> None:
    running.discard(module)


def _called_in(
    caller: nn.Module, around: tuple[nn.Module, ...] = ()
) -> Iterator[tuple[nn.Module, tuple[nn.Module, ...]]]:
    """Yield the modules that the code of a module can call, with the sequences around each.

    These are its children, and the modules in children that are containers.
    """
    for child in caller.children():
        if not isinstance(child, _CONTAINERS):
            yield child, around
        if isinstance(child, nn.Sequential):
            yield from _called_in(child, (*around, child))
        elif isinstance(child, _CONTAINERS):
            yield from _called_in(child, around)


def branches_on_training(model: nn.Module) -> bool:
    """Return whether code of the model, other than torch's, checks for training mode."""
    return any(
        "training" in _names(original_class(module).__mro__) for _, module in all_modules(model)
    )


@cache
def _names(classes: tuple[type, ...]) -> frozenset[str]:
    """Return the names that the code of classes mentions, except torch's and `__init__`."""
    own = [one for one in classes if not one.__module__.startswith("torch.")]
    codes = [
        one.__code__
        for each in own
        for name, one in vars(each).items()
        if isinstance(one, types.FunctionType) and name != "__init__"
    ]
    found: set[str] = set()
    while codes:
        code = codes.pop()
        found.update(code.co_names)
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return frozenset(found)
