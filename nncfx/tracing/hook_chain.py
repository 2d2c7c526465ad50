"""Hooks at one site, applied one after the other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nncfx.errors import HookError

__all__ = ["HookChain", "substitute"]


@dataclass(frozen=True, slots=True)
class HookChain:
    """The hooks at a site, in order.

    Attributes:
        site: The site as messages name it.
        hooks: At least one.
    """

    site: str
    hooks: tuple[nn.Module, ...]

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what `apply` does: a chain is a function of a tensor."""
        return self.apply(tensor)

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what the hooks make of `tensor`.

        Raises:
            HookError: a hook returned no tensor, or one of another shape, dtype or device.
        """
        for hook in self.hooks:
            result = hook(tensor)
            if result is not tensor:
                self._check(hook, tensor, result)
            tensor = result
        return tensor

    def _check(self, hook: nn.Module, given: torch.Tensor, result: Any) -> None:
        if not isinstance(result, torch.Tensor):
            returned = f"a {type(result).__name__}"
        elif result.shape != given.shape:
            returned = f"shape {tuple(result.shape)} for shape {tuple(given.shape)}"
        elif result.device != given.device:
            returned = f"a tensor on {result.device} for one on {given.device}"
        elif result.dtype != given.dtype and not torch.is_autocast_enabled(given.device.type):
            returned = f"{result.dtype} for {given.dtype}"
        else:
            return
        raise HookError(
            f"The hook {type(hook).__name__} at '{self.site}' returned {returned}; the operation "
            "there takes a tensor of the same shape, dtype and device as without the hook. "
            "Let the hook's forward keep all three.",
        )


def substitute(
    value: Any, chains: Mapping[int, Callable[[torch.Tensor], torch.Tensor]], first: int = 0
) -> tuple[Any, int]:
    """Return `value` with the tensors at some ports replaced, and the next free port.

    Ports count the tensors in `value` as `tensors_in` yields them, from `first`.
    """
    if isinstance(value, torch.Tensor):
        chain = chains.get(first)
        return (value if chain is None else chain(value)), first + 1
    if isinstance(value, Mapping):
        parts, port = substitute(list(value.values()), chains, first)
        return dict(zip(value, parts, strict=True)), port
    if not isinstance(value, tuple | list) or isinstance(value, torch.Size):
        return value, first
    port, parts = first, []
    for part in value:
        replaced, port = substitute(part, chains, port)
        parts.append(replaced)
    if isinstance(value, list):
        return parts, port
    # torch.return_types take one sequence, named tuples take fields
    if type(value) is tuple or type(value).__module__ == "torch.return_types":
        return type(value)(parts), port
    return type(value)(*parts), port
