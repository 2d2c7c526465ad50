"""Reject models that cannot be traced, and advise on modules that compute weights."""

import os

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from nncfx.errors import ArgumentError, TracingError
from nncfx.storage.models.module_walk import all_modules


def require_module(model: object, taker: str) -> None:
    """Check that `taker` can work on `model`.

    Raises:
        ArgumentError: `model` is not a module.
        TracingError: it is TorchScript, or has parameters without a shape.
    """
    if not isinstance(model, nn.Module):
        fix = "the model itself"
        if isinstance(model, torch.export.ExportedProgram):
            fix = "the module that was exported"
        elif isinstance(model, (str, os.PathLike)):
            fix = f"the model first: {taker}(model, ...)"
        raise ArgumentError(
            f"{taker} takes an nn.Module, not a {type(model).__name__}. Pass {fix}."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise TracingError(
            f"{taker} cannot take a {type(model).__name__}: it is TorchScript, whose calls are "
            "not seen. Pass the Python module that it was made from."
        )
    require_shapes(model, taker)


def require_shapes(model: nn.Module, taker: str) -> None:
    """Check that `model` has no uninitialized lazy modules.

    Raises:
        TracingError: it has one.
    """
    for name, module in all_modules(model):
        tables = (module._parameters, module._buffers)  # noqa: SLF001 (as torch's own walk)
        if any(one is not None and is_lazy(one) for table in tables for one in table.values()):
            where = f"its module '{name}' is" if name else "it is"
            raise TracingError(
                f"{taker} cannot take this {type(model).__name__}: {where} a "
                f"{type(module).__name__} whose parameters have no shape yet. Run the model once "
                "on an example."
            )


def parametrization_fix(model: nn.Module) -> str:
    """Return advice about weights that modules recompute in each forward; "" if there are none.

    >>> parametrization_fix(nn.Linear(2, 2))
    ''
    """
    modules = all_modules(model)
    new = [name for name, one in modules if parametrize.is_parametrized(one, "weight")]
    old = [name for name, one in modules if {"weight_g", "weight_v"} <= one._parameters.keys()]  # noqa: SLF001 (of any module)
    spectral, pruned = (
        [
            name
            for name, one in modules
            if "weight_orig" in one._parameters and buffer in one._buffers  # noqa: SLF001 (as above)
        ]
        for buffer in ("weight_u", "weight_mask")
    )
    fixes = (
        (new, "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"),
        (old, "torch.nn.utils.remove_weight_norm(module)"),
        (spectral, "torch.nn.utils.remove_spectral_norm(module)"),
        (pruned, "torch.nn.utils.prune.remove(module, 'weight')"),
    )
    return "".join(
        f" A parametrization computes the weight of '{names[0]}'"
        f"{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {call} makes it a parameter."
        for names, call in fixes
        if names
    )
