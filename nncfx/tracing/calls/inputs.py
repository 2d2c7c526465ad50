"""Example inputs: one spelling for every function that runs a model once."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

from nncfx.errors import ArgumentError

__all__ = ["ExampleInputs", "as_call", "run"]

ExampleInputs: TypeAlias = torch.Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""A tensor (the only positional input), a tuple or list of positional inputs, or a mapping of
keyword inputs."""


def as_call(example_inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return `(args, kwargs)` with which to call a model on `example_inputs`.

    Raises:
        ArgumentError: `example_inputs` is none of tensor, tuple, list, mapping.

    >>> as_call((torch.ones(1), 2))[0][1]
    2
    """
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    raise ArgumentError(
        f"example_inputs is a {type(example_inputs).__name__}; it must be a tensor, a tuple of "
        "positional inputs, or a mapping of keyword inputs, as the model's forward takes them.",
    )


def run(model: torch.nn.Module, example_inputs: ExampleInputs) -> Any:
    """Return the model's output on `example_inputs`, in the model's present mode."""
    args, kwargs = as_call(example_inputs)
    return model(*args, **kwargs)
