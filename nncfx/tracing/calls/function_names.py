"""The names of torch functions in addresses, and which calls are operations.

Under a `TorchFunctionMode` torch reports `x + y` as `Tensor.add` and an in-place ReLU as
`F.relu(inplace=True)`; NNCF names them `__add__` and `relu_`. A table maps function objects, by
identity, to NNCF's names; other functions keep their own names. Torch reports `x + y` and
`x.add(y)` alike, so both are `__add__`.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.nn import functional as F

_OPERATORS: Final[Mapping[str, str]] = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "truediv",
    "matmul": "matmul",
    "remainder": "mod",
}
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")


def _table() -> dict[Callable[..., Any], str]:
    table: dict[Callable[..., Any], str] = {}
    for method, operator in _OPERATORS.items():
        table[getattr(torch.Tensor, method)] = f"__{operator}__"
        if method != "matmul":  # no in-place matrix product exists
            table[getattr(torch.Tensor, f"{method}_")] = f"__i{operator}__"
    for name in _COMPARISONS:
        table[getattr(torch.Tensor, name)] = f"__{name}__"
    table[torch.Tensor.__pow__] = "__pow__"
    table[torch.Tensor.__ipow__] = "__ipow__"
    table[torch.Tensor.__rpow__] = "__rpow__"
    table[torch.Tensor.__rdiv__] = "__rtruediv__"
    table[torch.Tensor.neg] = "__neg__"
    return table


_SPELLINGS: Final[Mapping[Callable[..., Any], str]] = MappingProxyType(_table())

_CONSTRUCTORS: Final = frozenset(
    {
        *("arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "from_numpy"),
        *("full", "full_like", "linspace", "logspace", "new_empty", "new_empty_strided"),
        *("new_full", "new_ones", "new_tensor", "new_zeros", "ones", "ones_like", "rand"),
        *("rand_like", "randint", "randint_like", "randn", "randn_like", "randperm"),
        *("scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like"),
    }
)
_PASSING: Final = frozenset(
    {
        *("__deepcopy__", "alias", "as_subclass", "cpu", "cuda", "data", "dequantize"),
        *("refine_names", "rename", "rename_", "requires_grad_", "retain_grad", "share_memory_"),
    }
)


class Kind:
    """The kinds of calls for the graph, as returned by `kind`."""

    OPERATION: Final = "operation"
    PASSING: Final = "passing"
    """Not an operation; the result has the data of the first tensor argument."""
    CONSTRUCTOR: Final = "constructor"
    """Not an operation; the result depends on no tensor's values."""


def spelling(func: Callable[..., Any], kwargs: Mapping[str, Any] | None = None) -> str:
    """Return NNCF's name of `func`, as in addresses.

    Args:
        func: The function object that torch reports.
        kwargs: The keyword arguments of the call; they matter only for `F.relu`.

    >>> spelling(torch.Tensor.add_), spelling(torch.relu), spelling(F.relu, {"inplace": True})
    ('__iadd__', 'relu', 'relu_')
    """
    if func is F.relu and kwargs and kwargs.get("inplace"):
        return "relu_"
    known = _SPELLINGS.get(func)
    if known is not None:
        return known
    # built-in functions create a new name string on each access, and graphs keep it
    name = sys.intern(func.__name__)
    if name != "__get__":
        return name
    # an attribute such as x.T arrives as the bound __get__ of its descriptor
    descriptor = func.__self__  # type: ignore[attr-defined]  # a bound method has it
    getter: Any = descriptor.fget if isinstance(descriptor, property) else descriptor
    return str(getter.__name__)


@cache
def kind(name: str) -> str:
    """Return the `Kind` of calls of a function named `name`.

    >>> kind("linear"), kind("zeros_like"), kind("data")
    ('operation', 'constructor', 'passing')
    """
    if name in _CONSTRUCTORS:
        return Kind.CONSTRUCTOR
    return Kind.PASSING if name in _PASSING else Kind.OPERATION
