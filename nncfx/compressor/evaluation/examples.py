"""Single examples of the inputs of a compression run."""

from typing import cast

import torch

from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.tensors import replaced


def one_example(example_inputs: ExampleInputs) -> ExampleInputs:
    """Return the inputs cut to their first example along axis 0.

    Only tensors with the same length as the first are cut; others are shared by all examples.

    >>> one_example({"x": torch.ones(4, 2), "scale": torch.ones(3)})["x"].shape
    torch.Size([1, 2])
    """
    n = examples_in(example_inputs)

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:1] if tensor.dim() and tensor.shape[0] == n else tensor

    return cast("ExampleInputs", replaced(example_inputs, cut))
