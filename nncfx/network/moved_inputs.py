"""The inputs of a trace, as the model takes them now."""

import torch
from torch import Tensor, nn

from nncfx.graph import NNCFGraph
from nncfx.tracing.calls.inputs import ExampleInputs
from nncfx.tracing.calls.tensors import replaced


def moved_inputs(model: nn.Module, graph: NNCFGraph, given: ExampleInputs) -> ExampleInputs:
    """Return the inputs `given` to the trace `graph`, where and in which type `model` is now.

    Inputs of the type that all its weights had follow them where all have another one now, as
    behind `model.to(torch.bfloat16)`.
    """
    device = next((one.device for one in model.parameters()), None)
    if device is None:
        return given
    stored = dict(model.named_parameters(remove_duplicate=False))
    changes = {
        (read.dtype, now.dtype)
        for operation in graph.operations
        for port, name in operation.parameters.items()
        if (read := operation.inputs[port]) is not None
        and (now := stored.get(name)) is not None
        and now.is_floating_point()
    }
    types = {getattr(torch, before): now for before, now in changes} if len(changes) == 1 else {}

    def moved(one: Tensor) -> Tensor:
        # what has no values cannot be moved
        return one if one.is_meta else one.to(device, types.get(one.dtype))

    result: ExampleInputs = replaced(given, moved)
    return result
