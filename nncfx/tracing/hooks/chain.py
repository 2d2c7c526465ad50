"""Hooks at one site, applied one after the other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from nncfx.errors import HookError
from nncfx.tracing.calls.tensors import is_transformed

CHAINS: Final = "_nncf_chains"
"""The instance attribute: the chains that a module carries, by instance attribute of theirs."""


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
            HookError: a hook failed, or returned no tensor, or one of another shape, dtype or
                device.
        """
        for hook in self.hooks:
            result = self.result(hook, tensor)
            if result is not tensor and not is_alike(result, tensor):
                raise self.refusal(hook, tensor, result)
            tensor = result
        return tensor

    def result(self, hook: nn.Module, given: torch.Tensor) -> Any:
        """Return what `hook` returns for `given`.

        Raises:
            HookError: it raised torch's error of what does not fit together.
        """
        try:
            return hook(given)
        except RuntimeError as error:
            # what is derived from it is the machine's, a tracer's or our own
            if type(error) is not RuntimeError:
                raise
            raise HookError(
                f"The hook {type(hook).__name__} at '{self.site}' fails on a tensor of shape "
                f"{tuple(given.shape)}: {error}. {_mend(error)}"
            ) from error

    def refusal(self, hook: nn.Module, given: torch.Tensor, result: Any) -> HookError:
        """Return the error that says why `result` cannot stand for `given`."""
        if not isinstance(result, torch.Tensor):
            returned = f"a {type(result).__name__}"
        elif result.shape != given.shape:
            returned = f"shape {tuple(result.shape)} for shape {tuple(given.shape)}"
        elif result.device != given.device:
            returned = f"a tensor on {result.device} for one on {given.device}"
        else:
            returned = f"{result.dtype} for {given.dtype}"
        return HookError(
            f"The hook {type(hook).__name__} at '{self.site}' returned {returned}; the operation "
            "there takes a tensor of the same shape, dtype and device as without the hook. "
            "Let the hook's forward keep all three."
        )


def _mend(error: RuntimeError) -> str:
    """Return what to do where a hook fails with `error`."""
    if is_transformed():
        return (
            "A function of torch.func, such as vmap or grad, calls it: leave that part of the "
            "forward out of the graph by nncfx.tracing.no_nncf_trace()."
        )
    if "requires grad as a constant" in str(error):
        return (
            "torch.jit.trace makes constants of what a hook learns: call "
            "model.requires_grad_(False) first, or trace controller.strip()."
        )
    return (
        "If the layer or the inputs have other sizes than when the hook was made, wrap the model "
        "again as it is now."
    )


def is_alike(result: Any, given: torch.Tensor) -> bool:
    """Return whether what a hook returned can stand for what it was given."""
    return (
        isinstance(result, torch.Tensor)
        and result.is_nested == given.is_nested
        and (given.is_nested or result.shape == given.shape)  # nested tensors have no shape
        and result.device == given.device
        and (result.dtype == given.dtype or _casts(given.device.type))
    )


def _casts(device: str) -> bool:
    # whether autocast is on cannot be asked of a device that has none, such as meta
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def carry(module: nn.Module, chains: Mapping[str, HookChain]) -> None:
    """Let `module` carry `chains` for `carried`, each under the instance attribute that names it.

    A single hook is carried itself: compiled code checks again, at each of its runs, whatever a
    hooked call has read, so that each step in between counts.
    """
    own = module.__dict__
    own[CHAINS] = dict(chains)
    for attribute, chain in chains.items():
        own[attribute] = chain.hooks[0] if len(chain.hooks) == 1 else chain


def drop(module: nn.Module) -> None:
    """Take from `module` what `carry` gave it."""
    for attribute in module.__dict__.pop(CHAINS, {}):
        del module.__dict__[attribute]


def carried(module: nn.Module, attribute: str, given: torch.Tensor) -> torch.Tensor:
    """Return what the hooks make of `given` that `module` carries under `attribute`, if any.

    Raises:
        HookError: as `HookChain.apply`.
    """
    hook = getattr(module, attribute, None)
    if hook is None:  # dropped, and a forward set on the instance still asks for them
        return given
    result: torch.Tensor
    if torch.compiler.is_compiling() or isinstance(hook, HookChain):
        result = hook(given)
    else:
        result = module.__dict__[CHAINS][attribute].result(hook, given)
    if result is not given and not is_alike(result, given):
        raise module.__dict__[CHAINS][attribute].refusal(hook, given, result)
    return result


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
