"""Converts example inputs to the named arrays of a graph, and checks each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree

from nncfx.errors import RuntimeFailure, did_you_mean
from nncfx.schemes.wide_floats import wide
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.tensors import tensors_in

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class InputSpec:
    """One input of a graph: its name, its shape (None if open) and its numpy type."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


def named_arrays(inputs: ExampleInputs, specs: Sequence[InputSpec]) -> dict[str, Array]:
    """Return `{name: array}` for every input in `specs`.

    A mapping is matched by name; a tensor or a tuple by order, with nested ones flattened.

    Raises:
        RuntimeFailure: an input is missing or unknown, or its shape or type does not fit.
    """
    args, kwargs = as_call(inputs)
    count = len(pytree.tree_leaves(args)) if kwargs else len(specs)
    given = _by_order(args, specs[:count])
    if kwargs:
        given |= _by_name(kwargs, specs[count:])
    return {spec.name: _checked(given[spec.name], spec) for spec in specs}


def examples_in(inputs: ExampleInputs) -> int:
    """Return the number of examples: axis 0 of the first tensor, 1 if there is none.

    >>> examples_in(torch.zeros(8, 3))
    8
    """
    return next((len(one) for one in tensors_in(inputs) if one.ndim), 1)


def _by_name(kwargs: Mapping[str, Any], specs: Sequence[InputSpec]) -> dict[str, Any]:
    names = [spec.name for spec in specs]
    missing = [name for name in names if name not in kwargs]
    unknown = [name for name, one in kwargs.items() if name not in names and one is not None]
    if unknown:
        value = kwargs[unknown[0]]
        constant = (
            ""
            if isinstance(value, torch.Tensor | np.ndarray)
            else (f" It is {value!r}, which a file has as a constant: leave it out.")
        )
        raise RuntimeFailure(
            f"The model has no input '{unknown[0]}'; its inputs are {_listed(names)}."
            f"{did_you_mean(unknown[0], names)}{constant}"
        )
    if missing:
        raise RuntimeFailure(
            f"Input '{missing[0]}' of the model is not given; its inputs are {_listed(names)}, "
            f"and only {_listed(kwargs)} came."
        )
    return dict(kwargs)


def _by_order(args: tuple[Any, ...], specs: Sequence[InputSpec]) -> dict[str, Any]:
    leaves = [leaf for leaf in pytree.tree_leaves(args) if leaf is not None]
    if len(leaves) != len(specs):
        raise RuntimeFailure(
            f"The model has {len(specs)} input(s), {_listed(spec.name for spec in specs)}, but "
            f"{len(leaves)} came. Give one for each, in this order, or a mapping by name."
        )
    return {spec.name: leaf for spec, leaf in zip(specs, leaves, strict=True)}


def _checked(value: object, spec: InputSpec) -> Array:
    array = _as_array(_widened(value, spec), spec)
    if len(array.shape) != len(spec.shape) or any(
        wanted is not None and size != wanted
        for size, wanted in zip(array.shape, spec.shape, strict=True)
    ):
        note = " (? is open)" if None in spec.shape else ""
        raise RuntimeFailure(
            f"Input '{spec.name}' has shape {_shape_text(array.shape)}, but the model takes "
            f"{_shape_text(spec.shape)}{note}. Give that shape, or export the model "
            "again with example inputs of yours or with that axis in dynamic_axes."
        )
    if array.dtype != np.dtype(spec.dtype):
        raise RuntimeFailure(
            f"Input '{spec.name}' is {array.dtype}, but the model takes {spec.dtype}. "
            f"Convert it: x.to(torch.{spec.dtype})."
        )
    return np.ascontiguousarray(array).reshape(array.shape)


def _widened(value: object, spec: InputSpec) -> object:
    """Return 16-bit floats as the float32 that the model needs, without loss."""
    if isinstance(value, torch.Tensor) and spec.dtype == "float32":
        return wide(value)
    return value


def _as_array(value: object, spec: InputSpec) -> Array:
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            raise RuntimeFailure(
                f"Input '{spec.name}' is bfloat16, which numpy does not have; the model takes "
                f"{spec.dtype}. Convert it: x.to(torch.{spec.dtype})."
            )
        return np.asarray(value.detach().cpu().resolve_conj().resolve_neg())
    return np.asarray(value, dtype=None if isinstance(value, np.ndarray) else spec.dtype)


def _shape_text(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
