"""Example inputs, in the forms accepted by every function that runs a model."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar

import torch
from torch.utils import _pytree as pytree

from nncfx.errors import ArgumentError

C = TypeVar("C")

ExampleInputs: TypeAlias = torch.Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""A tensor (the only positional input), a tuple or list of positional inputs, a mapping of keyword
inputs, or both as for torch.export: a tuple of a tuple and a mapping, `((x,), {"mask": m})`.
"""


INPUT_FORMS: Final = (
    "a tensor, a tuple of positional inputs (of a mapping: ({...},)), a mapping of keyword "
    "inputs, or ((positional, ...), {keyword: ...}) for both"
)
"""The forms of example inputs, for messages."""


def as_call(example_inputs: ExampleInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return `(args, kwargs)` with which to call a model on `example_inputs`.

    Raises:
        ArgumentError: `example_inputs` is not a tensor, tuple, list or mapping.

    >>> as_call((torch.ones(1), 2))[0][1]
    2
    >>> as_call(((torch.ones(1),), {"scale": 2}))[1]
    {'scale': 2}
    """
    if isinstance(example_inputs, torch.Tensor):
        return (example_inputs,), {}
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if _is_both(example_inputs):
        return example_inputs[0], dict(example_inputs[1])
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    raise ArgumentError(
        f"example_inputs is a {type(example_inputs).__name__}; it must be {INPUT_FORMS}, as the "
        "model's forward takes them."
    )


def _is_both(inputs: object) -> TypeGuard[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    return (
        isinstance(inputs, tuple)
        and len(inputs) == 2  # noqa: PLR2004 (positional, by keyword)
        and isinstance(inputs[0], tuple)
        and isinstance(inputs[1], Mapping)
        and all(isinstance(name, str) for name in inputs[1])
    )


def own_tensors(call: C) -> C:
    """Return arguments with copies of the tensors, for a forward that writes to its inputs."""
    copied: C = pytree.tree_map_only(torch.Tensor, torch.clone, call)
    return copied


def run(model: torch.nn.Module, example_inputs: ExampleInputs) -> Any:
    """Return the model's output on `example_inputs`, which stay, in the model's present mode."""
    args, kwargs = own_tensors(as_call(example_inputs))
    return model(*args, **kwargs)
