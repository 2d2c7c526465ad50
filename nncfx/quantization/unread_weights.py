"""Weights that no traced operation reads: no quantizer stands there, and nothing else says so."""

import logging
from typing import Final

from nncfx.controllers.weights import constants_of, own_parameters
from nncfx.tracing import NNCFNetwork

__all__ = ["tell_of_unread_weights", "unread_weights"]

_LOGGER = logging.getLogger(__name__)
_SHOWN: Final = 3


def unread_weights(model: NNCFNetwork) -> tuple[str, ...]:
    """Return the names of the parameters of at least two axes that no traced operation reads.

    They belong to layers that a branch on values left out, or that only training calls.
    """
    stored = constants_of(model)
    read = {
        id(stored[name])
        for operation in model.nncf.graph.operations
        for name in operation.parameters.values()
        if name in stored
    }
    own = {id(one) for one in own_parameters(model)}
    return tuple(
        name for name, one in model.named_parameters() if one.ndim > 1 and id(one) in own - read
    )


def tell_of_unread_weights(model: NNCFNetwork) -> None:
    """Log the weights that were not read, where there are any."""
    names = unread_weights(model)
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        _LOGGER.warning(
            "The traced forward did not read %s%s: no quantizer stands there. If other inputs "
            "take that path, trace them too, and first: nncfx.wrap(model, inputs, "
            "further_inputs=[...]).",
            ", ".join(f"'{one}'" for one in names[:_SHOWN]),
            more,
        )
