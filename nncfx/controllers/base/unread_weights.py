"""Find weights that hooks would miss, because they are not read or training writes to them."""

import logging
from collections.abc import Collection, Mapping, Sequence

from nncfx.controllers.base.weights import constants_of
from nncfx.errors import CompressionError, TracingError, shortened
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, WeightSite
from nncfx.tracing.hooks.store import own_parameters
from nncfx.tracing.record.tensor_writes import written_tensors

_LOGGER = logging.getLogger(__name__)


def unread_weights(model: NNCFNetwork, hooked: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the parameters of at least two axes that no traced operation reads.

    They belong to layers that a branch skipped, or that only training calls. If a forward folds
    branches into a weight, the weights of the branches and the folded weight count as read.

    Args:
        model: The wrapped model.
        hooked: Names of parameters to leave out, because they have hooks anyway.
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
        name
        for name, one in model.named_parameters()
        if one.ndim > 1
        and id(one) in own - read
        and name not in hooked
        and name not in model.nncf.folded_weights
    )


def warn_unread_weights(model: NNCFNetwork) -> None:
    """Warn about unread weights, if any, before quantization."""
    _tell(unread_weights(model), "no quantizer is there")


def warn_unhooked_weights(model: NNCFNetwork, plans: Mapping[str, Sequence[Insertion]]) -> None:
    """Warn about unread weights that algorithms which compress other weights ignore.

    Args:
        model: The wrapped model.
        plans: The insertions of each algorithm.
    """
    left: dict[str, list[str]] = {}
    for algorithm, plan in plans.items():
        hooked = {str(one.site) for one in plan if isinstance(one.site, WeightSite)}
        for name in unread_weights(model, hooked) if hooked else ():
            left.setdefault(name, []).append(algorithm)
    algorithms = list(dict.fromkeys(one for found in left.values() for one in found))
    _tell(list(left), f"{', '.join(algorithms)} will leave them as they are")


def check_written_weights(model: NNCFNetwork, plans: Mapping[str, Sequence[Insertion]]) -> None:
    """Check that no hooks are on weights that a training forward writes to.

    It would write to the result of the hook, so the writes would be lost.

    Args:
        model: The wrapped model.
        plans: The insertions of each algorithm.

    Raises:
        CompressionError: there is such a weight.
    """
    sites = {
        str(one.site): algorithm
        for algorithm, plan in plans.items()
        for one in plan
        if isinstance(one.site, WeightSite)
    }
    try:
        written = written_tensors(model, model.nncf.example_inputs, sites, train=True)
    except TracingError:
        return  # for instance because targets are missing, which only training passes
    if written:
        name = min(written)
        raise CompressionError(
            f"In training the forward writes to '{name}', and the hook of {sites[name]} would "
            "lose that. If only the first forward does so, as where a layer sets itself up, run "
            "the model once in training mode before it is compressed; else leave what reads it "
            "out with ignored_scopes, or write to it between the forwards."
        )


def _tell(names: Sequence[str], effect: str) -> None:
    if names:
        _LOGGER.warning(
            "The traced forward did not read %s: %s. If other inputs take that path, trace them "
            "too, and first: nncfx.wrap(model, inputs, further_inputs=[...]).",
            shortened([f"'{one}'" for one in names]),
            effect,
        )
