"""Chains of hooks at one site, applied one after the other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn

from nncfx.errors import HookError
from nncfx.tracing.calls.tensors import is_transformed

CHAINS: Final = "_nncf_chains"
"""The instance attribute that holds a module's chains, by the attribute of each chain."""


@dataclass(frozen=True, slots=True)
class HookChain:
    """The hooks at a site, in order.

    Attributes:
        site: The name of the site in messages.
        hooks: At least one hook.
    """

    site: str
    hooks: tuple[nn.Module, ...]

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the same as `apply`, so a chain can be used as a function of a tensor."""
        return self.apply(tensor)

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return `tensor` with the hooks applied.

        Raises:
            HookError: a hook failed, or returned something else than a tensor of the same shape,
                dtype and device.
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
            HookError: it raised a `RuntimeError`, torch's error for operands that do not match.
        """
        try:
            return hook(given)
        except RuntimeError as error:
            # subclasses are errors of the device, of a tracer or our own
            if type(error) is not RuntimeError:
                raise
            raise HookError(
                f"The hook {type(hook).__name__} at '{self.site}' fails on a tensor of shape "
                f"{tuple(given.shape)}: {error}. {_fix(error)}"
            ) from error

    def refusal(self, hook: nn.Module, given: torch.Tensor, result: Any) -> HookError:
        """Return the error that says why `result` cannot replace `given`."""
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


@dataclass(frozen=True)
class CallHooks:
    """Hooks around one call of a torch function, by port.

    Attributes:
        before: Hooks on its inputs.
        after: Hooks on its outputs.
        reads_floats: Whether any of its input tensors holds floats.
        rank: Number of earlier calls of the function by the module with equal `reads_floats`.
    """

    before: Mapping[int, HookChain] = field(default_factory=dict)
    after: Mapping[int, HookChain] = field(default_factory=dict)
    reads_floats: bool = True
    rank: int = 0


def _fix(error: RuntimeError) -> str:
    """Return advice for the user whose hook failed with `error`."""
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
    """Return whether the result of a hook can replace the tensor it was given."""
    return (
        isinstance(result, torch.Tensor)
        and result.is_nested == given.is_nested
        and (given.is_nested or result.shape == given.shape)  # nested tensors have no shape
        and result.device == given.device
        and (result.dtype == given.dtype or _casts(given.device.type))
    )


def _casts(device: str) -> bool:
    # is_autocast_enabled fails for devices without autocast, such as meta
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def carry(module: nn.Module, chains: Mapping[str, HookChain]) -> None:
    """Store `chains` in `module` for `carried`, each under its instance attribute.

    A chain of one hook is stored as the hook itself, because compiled code guards every object
    that a hooked call reads, at each run.
    """
    own = module.__dict__
    own[CHAINS] = dict(chains)
    for attribute, chain in chains.items():
        own[attribute] = chain.hooks[0] if len(chain.hooks) == 1 else chain


def drop(module: nn.Module) -> None:
    """Remove from `module` what `carry` stored."""
    for attribute in module.__dict__.pop(CHAINS, {}):
        del module.__dict__[attribute]


def carried(module: nn.Module, attribute: str, given: torch.Tensor) -> torch.Tensor:
    """Return `given` with the hooks applied that `module` has under `attribute`, if any.

    Raises:
        HookError: as `HookChain.apply`.
    """
    hook = getattr(module, attribute, None)
    if hook is None:  # dropped, but a forward set on the instance still calls this
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
    # torch.return_types take one sequence, named tuples take separate fields
    if type(value) is tuple or type(value).__module__ == "torch.return_types":
        return type(value)(parts), port
    return type(value)(*parts), port
