"""List the modules of a model and their tensors in one pass each."""

from typing import Literal

import torch
from torch import nn


def all_modules(model: nn.Module, *, every_name: bool = False) -> list[tuple[str, nn.Module]]:
    """Return what `model.named_modules()` yields, in the same order.

    Torch's generator passes each name up through all parent modules, which takes several times as
    long.

    Args:
        model: any module.
        every_name: whether a module with several names is listed under each, not only the first.
    """
    found: list[tuple[str, nn.Module]] = []
    seen: set[int] = set()
    left = [("", model)]
    while left:
        name, module = left.pop()
        if id(module) in seen and not every_name:
            continue
        seen.add(id(module))
        found.append((name, module))
        children = module._modules  # noqa: SLF001 (as torch's own walk)
        if children:  # most have none
            prefix = f"{name}." if name else ""
            below = [(prefix + key, one) for key, one in children.items() if one is not None]
            left += below[::-1]
    return found


def named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return what `model.named_modules(remove_duplicate=False)` yields, even if overridden."""
    found = all_modules(model, every_name=True)
    if all(type(one).named_modules is nn.Module.named_modules for _, one in found):
        return found
    return list(model.named_modules(remove_duplicate=False))


def all_tensors(
    model: nn.Module, *tables: Literal["_parameters", "_buffers"]
) -> dict[str, torch.Tensor]:
    """Return every parameter, then every buffer, under each of its names.

    Args:
        model: any module.
        tables: which tables to list; both if none is given.
    """
    modules = all_modules(model, every_name=True)
    found: dict[str, torch.Tensor] = {}
    for table in tables or ("_parameters", "_buffers"):
        for name, module in modules:
            prefix = f"{name}." if name else ""
            for key, tensor in getattr(module, table).items():
                if tensor is not None:
                    found[prefix + key] = tensor
    return found


def first_names(model: nn.Module) -> dict[int, str]:
    """Return the first name of every parameter and buffer, by `id`."""
    names: dict[int, str] = {}
    for name, module in named_modules(model):
        for table in (module._parameters, module._buffers):  # noqa: SLF001 (as torch's own walk)
            for key, tensor in table.items():
                if tensor is not None:
                    names.setdefault(id(tensor), f"{name}.{key}" if name else key)
    return names
