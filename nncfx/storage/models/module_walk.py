"""List the modules of a model and their tensors in one pass each."""

from collections.abc import Iterable
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
    found = [("", model)]
    _add_below("", model, found, None if every_name else {id(model)})
    return found


def _add_below(
    prefix: str, module: nn.Module, found: list[tuple[str, nn.Module]], seen: set[int] | None
) -> None:
    """Add the modules below `module` to `found`, except those whose `id`s are in `seen`."""
    for key, one in module._modules.items():  # noqa: SLF001 (as torch's own walk)
        if one is None:
            continue
        if seen is not None:
            if id(one) in seen:
                continue
            seen.add(id(one))
        name = prefix + key
        found.append((name, one))
        if one._modules:  # noqa: SLF001 (as above); most have none
            _add_below(f"{name}.", one, found, seen)


def named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return what `model.named_modules(remove_duplicate=False)` yields, even if overridden."""
    found = all_modules(model, every_name=True)
    kinds = {type(one) for _, one in found}
    if all(kind.named_modules is nn.Module.named_modules for kind in kinds):
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
            if not (own := getattr(module, table)):  # most modules have none
                continue
            prefix = f"{name}." if name else ""
            for key, tensor in own.items():
                if tensor is not None:
                    found[prefix + key] = tensor
    return found


def first_names(modules: Iterable[tuple[str, nn.Module]]) -> dict[int, str]:
    """Return the first name of every parameter and buffer of `named_modules`, by `id`."""
    names: dict[int, str] = {}
    for name, module in modules:
        for table in (module._parameters, module._buffers):  # noqa: SLF001 (as torch's own walk)
            for key, tensor in table.items():
                if tensor is not None:
                    names.setdefault(id(tensor), f"{name}.{key}" if name else key)
    return names
