"""Example inputs of a compression run: their batch size, and single examples."""

from typing import cast

import torch

from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.tensors import replaced, tensors_in


def batch_size(example_inputs: ExampleInputs) -> int:
    """Return the length of axis 0 of the first input tensor; 1 for a tensor without axes.

    >>> batch_size((torch.ones(4, 2), 3))
    4
    """
    first = next(iter(tensors_in(example_inputs)), None)
    return 1 if first is None or not first.dim() else first.shape[0]


def one_example(example_inputs: ExampleInputs) -> ExampleInputs:
    """Return the inputs cut to their first example along axis 0.

    Only tensors with the same length as the first are cut; others are shared by all examples.

    >>> one_example({"x": torch.ones(4, 2), "scale": torch.ones(3)})["x"].shape
    torch.Size([1, 2])
    """
    n = batch_size(example_inputs)

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:1] if tensor.dim() and tensor.shape[0] == n else tensor

    return cast("ExampleInputs", replaced(example_inputs, cut))
