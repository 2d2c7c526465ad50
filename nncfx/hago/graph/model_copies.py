"""Copies of models that can be wrapped."""

from torch import nn

from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork, unwrap
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.model_copy import copy_of


def plain_copy(model: nn.Module) -> nn.Module:
    """Return a copy of `model` that is not wrapped.

    Raises:
        ArgumentError: `model` is wrapped and has hooks.
        TracingError: it is sharded or offloaded.
    """
    require_whole(model, "copied", is_only_run=True)
    if not isinstance(model, NNCFNetwork):
        return copy_of(model)
    if model.nncf.hooks:
        raise ArgumentError(
            f"The model carries {len(model.nncf.hooks)} hooks, the first of "
            f"'{model.nncf.hooks[0].algorithm}'. Pass nncfx.strip(model), in which what they do "
            "to the weights is baked in."
        )
    return unwrap(copy_of(model))
