"""What is no module, modules in which no call can be seen, and those that compute a weight."""

import torch
from torch import nn
from torch.nn.utils import parametrize

from nncfx.errors import ArgumentError, TracingError

__all__ = ["parametrization_mend", "require_module"]


def require_module(model: object, taker: str) -> None:
    """Refuse what `taker` cannot work on.

    Raises:
        ArgumentError: `model` is no module.
        TracingError: it is TorchScript.
    """
    if not isinstance(model, nn.Module):
        mend = "the model itself"
        if isinstance(model, torch.export.ExportedProgram):
            mend = "the module that was exported"
        raise ArgumentError(
            f"{taker} takes an nn.Module, not a {type(model).__name__}. Pass {mend}.",
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise TracingError(
            f"{taker} cannot take a {type(model).__name__}: it is TorchScript, whose calls are "
            "not seen. Pass the Python module that it was made from.",
        )


def parametrization_mend(model: nn.Module) -> str:
    """Return what to do about weights that modules compute anew in each forward; "" if none do.

    >>> parametrization_mend(nn.Linear(2, 2))
    ''
    """
    modules = list(model.named_modules())
    new = [name for name, one in modules if parametrize.is_parametrized(one, "weight")]
    old = [name for name, one in modules if {"weight_g", "weight_v"} <= one._parameters.keys()]  # noqa: SLF001 (of any module)
    spectral = [
        name
        for name, one in modules
        if "weight_orig" in one._parameters and "weight_u" in one._buffers  # noqa: SLF001 (as above)
    ]
    mends = (
        (new, "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"),
        (old, "torch.nn.utils.remove_weight_norm(module)"),
        (spectral, "torch.nn.utils.remove_spectral_norm(module)"),
    )
    return "".join(
        f" A parametrization computes the weight of '{names[0]}'"
        f"{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {call} makes it a parameter."
        for names, call in mends
        if names
    )
