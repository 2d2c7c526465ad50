"""Example inputs of a compression run: where they come from, and one example of them."""

from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from nncfx.tracing import ExampleInputs

__all__ = ["batch_size", "one_example"]


def batch_size(example_inputs: ExampleInputs) -> int:
    """Return the length of axis 0 of the first input tensor; 1 for a tensor without axes.

    >>> batch_size((torch.ones(4, 2), 3))
    4
    """
    for leaf in pytree.tree_leaves(example_inputs):
        if isinstance(leaf, torch.Tensor):
            return leaf.shape[0] if leaf.dim() else 1
    return 1


def one_example(example_inputs: ExampleInputs) -> ExampleInputs:
    """Return the inputs cut to their first example along axis 0.

    Only tensors as long there as the first one are cut; others are the same for all examples.

    >>> one_example({"x": torch.ones(4, 2), "scale": torch.ones(3)})["x"].shape
    torch.Size([1, 2])
    """
    n = batch_size(example_inputs)

    def cut(leaf: Any) -> Any:  # noqa: ANN401 (a leaf of any inputs)
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == n:
            return leaf[:1]
        return leaf

    return cast("ExampleInputs", pytree.tree_map(cut, example_inputs))
