"""The functions of torch whose calls can be hooked, by the names that graphs give them."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import chain
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import get_overridable_functions

from nncfx.tracing.calls.function_names import spelling

__all__ = ["is_known_function", "spelled_functions"]


def is_known_function(name: str) -> bool:
    """Return whether calls of a function spelt `name` can be hooked inside a module."""
    return name in ("relu", "relu_") or name in spelled_functions()


@cache
def spelled_functions() -> dict[str, list[Callable[..., Any]]]:
    """Return, by spelling, the functions that torch reports to modes."""
    listed = chain.from_iterable(get_overridable_functions().values())
    # reported by torch, but not in its own list: Tensor.unflatten, F.hardswish, torch.sparse.mm
    homes = (torch.Tensor, torch, F, torch.sparse, torch._C._nn)  # noqa: SLF001 (of functional)
    unlisted = (
        one
        for home in homes
        for one in vars(home).values()
        if isinstance(one, FunctionType | BuiltinFunctionType)
    )
    attributes = (getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH"))
    functions: list[Callable[..., Any]] = [*unlisted, *listed, *attributes]
    found: dict[str, list[Callable[..., Any]]] = defaultdict(list)
    # torch.mm equals torch.dsmm, which has another name
    for name, func in dict.fromkeys((spelling(one), one) for one in functions):
        found[name].append(func)
    return dict(found)
