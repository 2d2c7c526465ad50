"""The arguments with which modules of a model are called, as plain data: `forward_arguments`."""

import inspect
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn

from nncfx.graph.operations import TensorInfo
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.preservation import preserved
from nncfx.tracing.calls.tensors import describe

# ruff: noqa: ANN401 (arguments of functions can be anything)

Arguments: TypeAlias = Mapping[str, Any]
"""Name to a `TensorInfo`, a number, a string, None, or a list or tuple of such."""

_Simple: TypeAlias = bool | int | float | str | None


def forward_arguments(
    model: nn.Module, example_inputs: ExampleInputs, names: Iterable[str]
) -> dict[str, Arguments]:
    """Return the arguments of the forwards of some modules, including defaults.

    Modules that are never called, or are called with anything but tensors and simple values, or
    with more arguments than their signature names, are left out. If there are several calls, the
    first counts.

    Args:
        model: run once, in evaluation mode, and restored.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        names: of modules.
    """
    found: dict[str, Arguments] = {}

    def note(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = _described(module, args, kwargs)
        if given is not None:
            found.setdefault(name, given)

    with ExitStack() as hooks, torch.no_grad(), preserved(model):
        for name in names:
            hook, module = partial(note, name), model.get_submodule(name)
            hooks.enter_context(
                module.register_forward_pre_hook(hook, with_kwargs=True, prepend=True)
            )
        run(model, example_inputs)
    return found


def made(value: Any, module: nn.Module) -> Any:
    """Return an argument from its description, zeros for a tensor, on the device of `module`."""
    if isinstance(value, TensorInfo):
        device = next((one.device for one in module.parameters()), None)
        return torch.zeros(value.shape, dtype=getattr(torch, value.dtype), device=device)
    if isinstance(value, list | tuple):
        return type(value)([made(one, module) for one in value])
    return value


def made_bytes(value: Any) -> int:
    """Return the memory in bytes of `made` for an argument, or a list or tuple of them."""
    if isinstance(value, TensorInfo):
        kind: torch.dtype = getattr(torch, value.dtype)
        return value.elements * kind.itemsize
    return sum(map(made_bytes, value)) if isinstance(value, list | tuple) else 0


def plain(value: Any) -> Any:
    """Return an argument as JSON values; `from_plain` is the inverse."""
    if isinstance(value, TensorInfo):
        return {"tensor": list(value.shape), "dtype": value.dtype}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [plain(one) for one in value]}
    return value


def from_plain(value: Any) -> Any:
    """Return the argument from the result of `plain`.

    Raises:
        KeyError: `plain` did not write it.
        ValueError: a tensor has a negative size, or an unknown dtype.
    """
    if not isinstance(value, Mapping):
        return value
    if "tensor" in value:
        info = TensorInfo(tuple(map(int, value["tensor"])), str(value["dtype"]))
        if min(info.shape, default=0) < 0 or not isinstance(
            getattr(torch, info.dtype, None), torch.dtype
        ):
            raise ValueError(f"there is no tensor of shape {info.shape} and type {info.dtype!r}")
        return info
    if "list" in value:
        return [from_plain(one) for one in value["list"]]
    return tuple(from_plain(one) for one in value["tuple"])


def _described(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Arguments | None:
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):  # it has no signature, or a wrong one
        return None
    bound.apply_defaults()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind in variable:
            if value:
                return None
            continue
        if not _is_simple(value):
            return None
        found[name] = _info(value)
    return found


def _is_simple(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(_is_simple(one) for one in value)
    return isinstance(value, torch.Tensor | _Simple)


def _info(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return describe(value)
    if isinstance(value, list | tuple):
        return type(value)([_info(one) for one in value])
    return value
