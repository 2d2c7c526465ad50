"""Move the inputs of a trace to the model's present device and dtype."""

import torch
from torch import Tensor, nn

from nncfx.graph import NNCFGraph
from nncfx.tracing.calls.inputs import ExampleInputs
from nncfx.tracing.calls.tensors import replaced


def moved_inputs(model: nn.Module, graph: NNCFGraph, given: ExampleInputs) -> ExampleInputs:
    """Return the traced inputs `given`, on the device and in the dtype that `model` has now.

    The dtype changes only if all weights changed from one dtype to another, for instance after
    `model.to(torch.bfloat16)`; then inputs of the old dtype are converted too.
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
        # a meta tensor has no values to move
        return one if one.is_meta else one.to(device, types.get(one.dtype))

    result: ExampleInputs = replaced(given, moved)
    return result
