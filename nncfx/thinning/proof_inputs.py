"""Inputs to compare models on besides the example: random ones that a model accepts."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.tensors import replaced, tensors_in

_LOOKUPS: Final = frozenset({F.embedding, torch.embedding})
_SEED: Final = 0


class EmbeddingRows(TorchFunctionMode):
    """While active, records which inputs index rows of a table, and its number of rows.

    Attributes:
        rows: `id` of an input to the number of rows of the shortest table that it, or a view of
            it, indexes.
    """

    def __init__(self, example_inputs: ExampleInputs) -> None:
        """Watch the tensors in `example_inputs`."""
        super().__init__()
        whole = [one for one in tensors_in(example_inputs) if _is_whole_number(one)]
        self._inputs = {one.untyped_storage().data_ptr(): id(one) for one in whole}
        self.rows: dict[int, int] = {}

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function."""
        if func in _LOOKUPS:
            tensors = tensors_in((args, kwargs))
            table = max(tensors, key=torch.Tensor.is_floating_point)
            for one in tensors:
                found = self._inputs.get(one.untyped_storage().data_ptr())
                if found is not None and one is not table:
                    self.rows[found] = min(len(table), self.rows.get(found, len(table)))
        return func(*args, **(kwargs or {}))


def random_inputs(
    example_inputs: ExampleInputs, rows: Mapping[int, int], *, spread: float | None = None
) -> Iterator[Any]:
    """Yield random inputs with the example's shapes and types, the most different first.

    Floats lie between the smallest and the largest of their tensor; if all are equal, they are
    normally distributed. Integers that index rows of a table are drawn from all rows; others stay
    between their smallest and largest. The second inputs keep the example's integers. Bools,
    single numbers, non-finite values and non-tensors do not change. The random state of torch is
    not changed.

    Args:
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        rows: `id` of an input of integers to the number of rows of the table that it indexes.
        spread: the standard deviation of all floats instead, around 0.
    """
    for chosen in (rows, None):
        generator = torch.Generator().manual_seed(_SEED)
        yield replaced(example_inputs, partial(_other, chosen, generator, spread))


def _other(
    rows: Mapping[int, int] | None,
    generator: torch.Generator,
    spread: float | None,
    tensor: torch.Tensor,
) -> torch.Tensor:
    """Return random values like `tensor`; integers do not change if `rows` is None."""
    if tensor.is_meta or tensor.layout != torch.strided or not tensor.numel():
        return tensor
    if tensor.is_floating_point():
        return _numbers(tensor, generator, spread)
    if rows is not None and _is_whole_number(tensor):
        return _whole_numbers(tensor, rows.get(id(tensor)), generator)
    return tensor


def _is_whole_number(tensor: torch.Tensor) -> bool:
    if tensor.is_meta or tensor.layout != torch.strided:
        return False
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _numbers(
    tensor: torch.Tensor, generator: torch.Generator, spread: float | None
) -> torch.Tensor:
    if tensor.dim() == 0 or not tensor.isfinite().all():
        return tensor
    low, high = float(tensor.min()), float(tensor.max())
    if spread is None and low < high:
        drawn = torch.rand(tensor.shape, generator=generator, device="cpu") * (high - low) + low
    else:
        drawn = torch.randn(tensor.shape, generator=generator, device="cpu") * (spread or 1.0)
    return drawn.to(tensor)


def _whole_numbers(
    tensor: torch.Tensor, rows: int | None, generator: torch.Generator
) -> torch.Tensor:
    low, high = (int(tensor.min()), int(tensor.max()) + 1) if rows is None else (0, rows)
    return torch.randint(low, high, tensor.shape, generator=generator, device="cpu").to(tensor)
