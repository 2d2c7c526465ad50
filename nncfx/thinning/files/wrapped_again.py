"""Wraps a fresh model like the one in a file, with the same calls."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from nncfx.errors import StorageError, TracingError
from nncfx.graph import NNCFGraph
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.storage.models.stored_model import StoredModel
from nncfx.tracing import ExampleInputs, WeightSite
from nncfx.tracing.calls.devices import device_of
from nncfx.tracing.calls.input_specs import inputs_from
from nncfx.tracing.calls.inputs import as_call, own_tensors
from nncfx.tracing.calls.preservation import preserved

_MASK_AXES: Final = 2
"""Number of axes of a mask: batch and position."""


def call_counts(model: NNCFNetwork) -> dict[str, int]:
    """Return how often functions with hooks are called, by scope and function.

    Addresses contain call numbers, and a filled cache saves calls. The only call of a scope always
    has the same number.
    """
    graph = model.nncf.graph
    often = Counter(one.scope for one in graph.operations)
    hooked = (
        graph.find(one.site.address)
        for one in model.nncf.hooks
        if not isinstance(one.site, WeightSite)
    )
    names = dict.fromkeys(f"{one.scope}/{one.function}" for one in hooked if often[one.scope] > 1)
    made = _made(graph)
    return {name: made[name] for name in names}


def _made(graph: NNCFGraph) -> Counter[str]:
    return Counter(f"{one.scope}/{one.function}" for one in graph.operations)


def wrapped(
    model: nn.Module, stored: StoredModel, example_inputs: ExampleInputs | None = None
) -> NNCFNetwork:
    """Return `model`, wrapped in place with inputs like those of the model in the file.

    If its calls differ from those of that model, it is traced again: with padding, as models read
    a mask only where it masks something, and then after one run, for caches that a forward fills.

    Raises:
        ArgumentError: example inputs are needed.
        TracingError: the model cannot be traced.
        StorageError: the file is damaged.
    """
    wanted = _wanted(stored)
    network = _wrapped(model, stored, example_inputs)
    if not _others(network, wanted):
        return network
    inputs = network.nncf.example_inputs
    unwrap(network)
    if example_inputs is None:
        with suppress(TracingError):
            network = _wrapped(model, stored, _padded(inputs))
            if not _others(network, wanted):
                return network
            unwrap(network)
    args, kwargs = own_tensors(as_call(inputs))
    with torch.no_grad(), preserved(model):
        model(*args, **kwargs)
    return _wrapped(model, stored, inputs)


def warn_other_calls(network: nn.Module, stored: StoredModel) -> None:
    """Warn about calls that `network` makes more or less often than the model in the file.

    Raises:
        StorageError: the file is damaged.
    """
    wanted = _wanted(stored)
    others = _others(network, wanted) if isinstance(network, NNCFNetwork) else {}
    if others:
        name = next(iter(others))
        warnings.warn(
            f"The model makes other calls than when the file was written: {name} {others[name]} "
            f"times, and {wanted[name]} times then. Quantizers are identified by call numbers, "
            "and may be at other calls now. Build the model as it was, from the same code, and "
            "make a new one where a forward has filled a cache of this one; or pass the "
            "example_inputs used then.",
            stacklevel=4,
        )


def _wanted(stored: StoredModel) -> Mapping[str, Any]:
    wanted = stored.structure.get("calls", {})
    if not isinstance(wanted, Mapping):
        raise StorageError(
            "The file is damaged: its calls are not an object. Save the model again."
        )
    return wanted


def _others(network: NNCFNetwork, wanted: Mapping[str, Any]) -> dict[str, int]:
    made = _made(network.nncf.graph)
    return {name: made[name] for name, count in wanted.items() if made[name] != count}


def _wrapped(
    model: nn.Module, stored: StoredModel, example_inputs: ExampleInputs | None
) -> NNCFNetwork:
    described = stored.structure.get("example_inputs", {})
    others = listed(stored.structure, "further_inputs")
    if example_inputs is not None:
        further = [_made_for(model, one) for one in others]
        return wrap(model, example_inputs, further_inputs=further)
    try:
        made, *further = (_made_for(model, one) for one in (described, *others))
        return wrap(model, made, further_inputs=further)
    except TracingError as error:
        made, *further = (_made_for(model, one, noise=False) for one in (described, *others))
        with suppress(TracingError):
            return wrap(model, made, further_inputs=further)
        raise TracingError(
            f"{error} These were made from the shapes in the file: if it is of another model, "
            "take that one; else pass example_inputs to load."
        ) from error


def _made_for(
    model: nn.Module, description: Mapping[str, Any], *, noise: bool = True
) -> ExampleInputs:
    """Return inputs as described, on the device of `model` and in a floating dtype that it has.

    A fresh model has float32, whatever dtype the model in the file was converted to.
    """
    own = [one.dtype for one in model.parameters() if one.is_floating_point()]
    dtypes = dict.fromkeys(own)

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not dtypes or tensor.dtype in dtypes:
            return tensor
        return tensor.to(own[0])

    inputs = inputs_from(description, device_of(model), noise=noise)
    fitting: ExampleInputs = pytree.tree_map_only(torch.Tensor, cast, inputs)
    return fitting


def _padded(inputs: ExampleInputs) -> ExampleInputs:
    """Return `inputs` with zeros in the last column of tensors that may be masks."""

    def masked(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point() or tensor.ndim < _MASK_AXES:
            return tensor
        tensor = tensor.clone()
        tensor[..., -1:] = 0
        return tensor

    result: ExampleInputs = pytree.tree_map_only(torch.Tensor, masked, inputs)
    return result


def listed(structure: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Return the list `name` of a file's structure; empty if missing.

    Raises:
        StorageError: it is not a list.
    """
    found = structure.get(name, [])
    if not isinstance(found, list):
        raise StorageError(
            f"The file is damaged: its {name} are not a list. Save the model again."
        )
    return found
