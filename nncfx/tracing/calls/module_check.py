"""What is no module, and modules in which no call can be seen."""

import torch
from torch import nn

from nncfx.errors import ArgumentError, TracingError

__all__ = ["require_module"]


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
