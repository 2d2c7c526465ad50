"""The inputs of a model in what a loader gives."""

import inspect
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.network.network import NNCFNetwork
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.devices import device_of, on_device
from nncfx.tracing.calls.inputs import as_call

__all__ = ["inputs_in"]

_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def inputs_in(batch: object, model: nn.Module) -> ExampleInputs:
    """Return the inputs in a batch, on the model's device; labels behind them are left out.

    Args:
        batch: A tensor; a mapping of keyword inputs; a tuple that begins with all positional
            inputs, if the forward needs several or the model was wrapped with several; or another
            tuple or list, such as of input and label, whose first element is one of these.
        model: Its forward, and what it was wrapped with, tell how many inputs it has.

    Raises:
        ArgumentError: the batch is none of these.
    """
    inputs: ExampleInputs = on_device(device_of(model), _inputs(batch, model))
    return inputs


def _inputs(batch: object, model: nn.Module) -> object:
    if isinstance(batch, Tensor | Mapping):
        return batch
    if isinstance(batch, tuple | list) and batch:
        count = _positional_inputs(model)
        if len(batch) >= count > 1 and all(isinstance(one, Tensor) for one in batch[:count]):
            return tuple(batch[:count])
        if isinstance(batch[0], Tensor | Mapping | tuple | list):
            return batch[0]
    raise ArgumentError(
        f"A batch is a {type(batch).__name__}; it must be a tensor, a mapping of keyword inputs, "
        "or a tuple that begins with one of them. Map your loader to the inputs.",
    )


def _positional_inputs(model: nn.Module) -> int:
    """Return how many positional inputs the forward needs, or has in the model's own example."""
    if isinstance(model, torch.jit.ScriptModule):  # which has no signature
        return 1
    parameters = inspect.signature(model.forward).parameters.values()
    needed = sum(
        one.kind in _POSITIONAL and one.default is inspect.Parameter.empty for one in parameters
    )
    if isinstance(model, NNCFNetwork):
        needed = max(needed, len(as_call(model.nncf.example_inputs)[0]))
    return needed
