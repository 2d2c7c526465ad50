"""Run models whose weights have no values yet, with zeros that take no memory."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from nncfx.storage.models.module_walk import all_tensors
from nncfx.tracing.calls.tensors import replaced, tensors_in


@contextmanager
def zeros_for_meta(modules: Iterable[nn.Module]) -> Iterator[frozenset[int]]:
    """Replace parameters and buffers on "meta" by zeros within the context.

    The operating system allocates memory for zeros only when they are written to. Tensors that
    code computes from inputs, such as attention masks, then have values. Tensors that modules
    share stay shared; tensors of special types stay on "meta".

    Args:
        modules: those of a model, once or under every name.

    Yields:
        `id`s of the zeros.
    """
    before: list[tuple[dict[str, Any], dict[str, Any]]] = []
    made: dict[int, torch.Tensor] = {}
    for module in modules:
        tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)  # noqa: SLF001 (as torch's own walk)
        for table in filter(None, tables):  # most modules have none
            empty = {key: one for key, one in table.items() if one is not None and _is_empty(one)}
            if empty:
                before.append((table, empty))
            for key, one in empty.items():
                if id(one) not in made:
                    made[id(one)] = _alike(one)
                table[key] = made[id(one)]
    try:
        yield frozenset(map(id, made.values()))
    finally:
        for table, empty in before:
            table.update(empty)


def with_values(model: nn.Module, inputs: Any) -> Any:
    """Return `inputs` with ones in place of tensors on "meta", if all of `model` has values.

    Ones are valid as words, as positions and as masks that hide nothing.
    """
    given = tensors_in(inputs)
    if not any(one.is_meta for one in given) or any(
        one.is_meta for one in all_tensors(model).values()
    ):
        return inputs
    return replaced(inputs, lambda one: torch.ones_like(one, device="cpu") if one.is_meta else one)


def _is_empty(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and type(tensor) in (torch.Tensor, nn.Parameter)


def zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros on the CPU that take no memory until they are written to."""
    size = math.prod(shape) * dtype.itemsize
    # numpy gets zeroed memory from the system, while torch would write zeros
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(tuple(shape))


def _alike(tensor: torch.Tensor) -> torch.Tensor:
    made = zeros(tensor.shape, tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made
