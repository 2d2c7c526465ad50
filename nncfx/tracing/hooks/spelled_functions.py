"""The functions of torch whose calls can be hooked, by the names that graphs give them."""

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, get_overridable_functions
from typing_extensions import override

from nncfx.tracing.calls.function_names import spelling

__all__ = ["SpelledCalls", "is_known_function"]


@dataclass(frozen=True, eq=False)
class SpelledCalls:
    """The functions of some spellings, to find the spelling of a call.

    Attributes:
        by_function: What torch reports, to its spelling.
        pairs: The same. Compiled code compares functions by identity; it may not read their
            names, nor look them up in a dict.
        operators: Python's operator, whether its first operand is no tensor, and the spelling.
        reads_attribute: A spelling is that of an attribute, such as `x.T`.
    """

    by_function: Mapping[Callable[..., Any], str]
    pairs: tuple[tuple[Callable[..., Any], str], ...]
    operators: tuple[tuple[Callable[..., Any], bool, str], ...]
    reads_attribute: bool

    @classmethod
    def of(cls, names: Iterable[str]) -> "SpelledCalls":
        """Return the functions that are spelt so."""
        ordered = sorted(names)
        found = {one: name for name in ordered for one in spelled_functions().get(name, ())}
        called = {name for one, name in found.items() if one.__name__ != "__get__"}
        operators = tuple(one for one in _operators() if one[-1] in ordered)
        return cls(found, tuple(found.items()), operators, bool(set(found.values()) - called))

    def spelling(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        """Return how a call is spelt that a mode sees, if it is one of these."""
        if func is F.relu:
            return "relu_" if kwargs.get("inplace") else "relu"
        if not torch.compiler.is_compiling():
            return self.by_function.get(func)
        for known, name in self.pairs:
            if func is known:
                return name
        for known, is_swapped, name in self.operators:
            if func is known and isinstance(args[0], torch.Tensor) is not is_swapped:
                return name
        return None


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


class _Reports(TorchFunctionMode):
    """Keeps what torch reports."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.names.append(spelling(func, kwargs))
        return func(*args, **(kwargs or {}))


@cache
def _operators() -> tuple[tuple[Callable[..., Any], bool, str], ...]:
    """Return what `SpelledCalls.operators` has, for all operators.

    A mode sees `x + y` as a method of tensors, in compiled code too; but `torch.export` with
    `strict=True` shows it `operator.add` (torch/_dynamo/variables/builtin.py, 2.13).
    """

    def seen() -> Iterator[tuple[Callable[..., Any], bool, str]]:
        one = torch.ones(1, device="cpu")
        for name, func in vars(operator).items():
            if not (name.startswith("__") and callable(func) and hasattr(torch.Tensor, name)):
                continue
            for args in ((one,), (one, one), (one, 0), (1.0, one)):
                try:
                    with torch.no_grad(), _Reports() as reports:
                        func(*args)
                except (TypeError, RuntimeError, IndexError):
                    continue  # it takes another number of operands, or no such
                for reported in reports.names[:1]:
                    yield func, args[0] is not one, reported

    return tuple(dict.fromkeys(seen()))
