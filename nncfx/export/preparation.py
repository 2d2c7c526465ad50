"""Make a model ready to be exported: unwrapped where possible, inferring, and running."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from nncfx.errors import ExportError
from nncfx.export.dynamic_batch import Call
from nncfx.tracing import NNCFNetwork, Priority, WeightSite, strip

__all__ = ["inferring", "plain", "run_once"]


def plain(model: nn.Module) -> nn.Module:
    """Return a wrapped model without its wrapping, where a plain module can compute the same.

    Quantizers stay: a weight that they have rounded is, in a plain module, a float like any other.
    """
    if not isinstance(model, NNCFNetwork):
        return model
    if any(
        not isinstance(insertion.site, WeightSite) or insertion.priority >= Priority.QUANTIZATION
        for insertion in model.nncf.hooks
    ):
        return model
    return strip(model)


@contextlib.contextmanager
def inferring(model: nn.Module) -> Iterator[None]:
    """Hold every module in eval mode, and put each back into its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def run_once(model: nn.Module, call: Call) -> object:
    """Return what `model` returns for `call`.

    Raises:
        ExportError: it does not run.
    """
    args, kwargs = call
    try:
        return model(*args, **kwargs)
    except Exception as error:
        raise ExportError(
            f"{type(model).__name__} does not run on the example inputs, so there is nothing to "
            f"export: {type(error).__name__}: {error}",
        ) from error
