"""Describe example inputs as JSON data, by shapes and types without values."""

import math
from collections import namedtuple
from collections.abc import Mapping
from operator import index
from typing import Any, Final

import torch

from nncfx.errors import ArgumentError, StorageError
from nncfx.tracing.calls.inputs import ExampleInputs

MOST_BYTES: Final = 2**30
"""Maximum memory of the inputs that a file describes."""


def describe_inputs(inputs: object) -> dict[str, Any]:
    """Return a description of `inputs`, nested likewise.

    Objects that JSON cannot represent are described as "other", which `inputs_from` rejects.

    >>> describe_inputs((torch.ones(1, 3), True))["items"][0]
    {'kind': 'tensor', 'shape': [1, 3], 'dtype': 'float32'}
    """
    if isinstance(inputs, torch.Tensor):
        dtype = str(inputs.dtype).removeprefix("torch.")
        return {"kind": "tensor", "shape": list(inputs.shape), "dtype": dtype}
    if isinstance(inputs, Mapping) and all(isinstance(key, str) for key in inputs):
        items = {key: describe_inputs(value) for key, value in inputs.items()}
        return {"kind": "mapping", "items": items}
    if isinstance(inputs, tuple | list):
        parts = [describe_inputs(one) for one in inputs]
        if hasattr(inputs, "_fields"):
            names = {"type": type(inputs).__name__, "fields": list(inputs._fields)}
            return {"kind": "named tuple", "items": parts, **names}
        return {"kind": "tuple" if isinstance(inputs, tuple) else "list", "items": parts}
    if inputs is None or isinstance(inputs, bool | int | float | str):
        return {"kind": "value", "value": inputs}
    return {"kind": "other", "type": type(inputs).__name__}


def inputs_from(
    description: Mapping[str, Any], device: torch.device, *, noise: bool = True
) -> ExampleInputs:
    """Return inputs of the described shapes and types on `device`.

    Floating-point tensors are normal noise of a fixed seed, or ones without `noise`, since floats
    can be row numbers of a table. All other tensors are ones.

    Raises:
        ArgumentError: an input could not be described when the file was written.
        StorageError: `description` is damaged, or the inputs would take more than 1 GiB, because
            an untrusted file could ask for any size.
    """
    try:
        asked = _bytes(description)
        if asked > MOST_BYTES:
            raise StorageError(
                f"The file describes example inputs of {asked:,} bytes; at most {MOST_BYTES:,} "
                "are made. If you trust it, pass example_inputs."
            )
        made = _make(description, device, noise=noise)
    except ArgumentError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise StorageError(
            f"The description of the example inputs is damaged: {error!r}. Pass example_inputs."
        ) from error
    if isinstance(made, torch.Tensor | tuple | list | Mapping):
        return made
    raise StorageError("The description of the example inputs is damaged. Pass example_inputs.")


def _bytes(description: Any) -> int:
    """Return the memory that described inputs take."""
    if description["kind"] == "tensor":
        shape = [index(extent) for extent in description["shape"]]
        if min(shape, default=0) < 0:
            raise TypeError(f"a tensor has the shape {shape}")
        dtype: torch.dtype = getattr(torch, description["dtype"])
        return math.prod(shape) * dtype.itemsize
    items = description.get("items", ())
    return sum(map(_bytes, items.values() if isinstance(items, Mapping) else items))


def _make(description: Mapping[str, Any], device: torch.device, *, noise: bool) -> Any:
    kind = description["kind"]
    if kind == "tensor":
        dtype = getattr(torch, description["dtype"])
        return _tensor(description["shape"], dtype, device, noise=noise)
    if kind == "mapping":
        items = description["items"].items()
        return {key: _make(one, device, noise=noise) for key, one in items}
    if kind in {"tuple", "list"}:
        items = [_make(one, device, noise=noise) for one in description["items"]]
        return tuple(items) if kind == "tuple" else items
    if kind == "named tuple":
        items = [_make(one, device, noise=noise) for one in description["items"]]
        return namedtuple(description["type"], description["fields"])(*items)  # noqa: PYI024 (names are data)
    if kind == "value":
        return description["value"]
    raise ArgumentError(
        f"An example input was a {description['type']}, which the file does not describe. Pass "
        "example_inputs."
    )


def _tensor(
    shape: list[int], dtype: torch.dtype, device: torch.device, *, noise: bool
) -> torch.Tensor:
    if not (noise and dtype.is_floating_point):
        return torch.ones(shape, dtype=dtype, device=device)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, device="cpu").to(device, dtype)
