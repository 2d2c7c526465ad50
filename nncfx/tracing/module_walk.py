"""List the modules of a model, and their tensors, in one pass each."""

import torch
from torch import nn

__all__ = ["all_modules", "all_tensors"]


def all_modules(model: nn.Module, *, every_name: bool = False) -> list[tuple[str, nn.Module]]:
    """Return what `model.named_modules()` yields, in its order.

    Torch's generator hands each name up through all the modules around it, which takes several
    times as long.

    Args:
        model: any module.
        every_name: whether a module that has several names comes under each, not the first alone.
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
        prefix = f"{name}." if name else ""
        children = list(module._modules.items())  # noqa: SLF001 (as torch's own walk)
        left += [(prefix + key, child) for key, child in reversed(children) if child is not None]
    return found


def all_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter, then every buffer, under each of its names."""
    modules = all_modules(model, every_name=True)
    found: dict[str, torch.Tensor] = {}
    for table in ("_parameters", "_buffers"):
        for name, module in modules:
            prefix = f"{name}." if name else ""
            for key, tensor in getattr(module, table).items():
                if tensor is not None:
                    found[prefix + key] = tensor
    return found
