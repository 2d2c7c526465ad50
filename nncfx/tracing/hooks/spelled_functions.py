"""The torch functions whose calls can be hooked, by their names in graphs."""

import operator
import sys
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


@dataclass(frozen=True, eq=False)
class SpelledCalls:
    """A set of named functions, to find the name of a call.

    Attributes:
        by_function: Names by the function that torch reports.
        pairs: The same as pairs, for compiled code, which can compare functions by identity but
            can neither read their names nor look them up in a dict.
        operators: Python's operator, whether its first operand is not a tensor, and the name.
        attributes: The names of attributes, such as `x.T`; some are also names of functions, such
            as `x.real`.
        reads_attribute: Whether a name belongs to an attribute only.
    """

    by_function: Mapping[Callable[..., Any], str]
    pairs: tuple[tuple[Callable[..., Any], str], ...]
    operators: tuple[tuple[Callable[..., Any], bool, str], ...]
    attributes: frozenset[str]
    reads_attribute: bool

    @classmethod
    def of(cls, names: Iterable[str]) -> "SpelledCalls":
        """Return the functions of these names."""
        ordered = sorted(names)
        found = {one: name for name in ordered for one in spelled_functions().get(name, ())}
        attributes = frozenset(name for one, name in found.items() if one.__name__ == "__get__")
        called = {name for one, name in found.items() if one.__name__ != "__get__"}
        operators = tuple(one for one in _operators() if one[-1] in ordered)
        _show(found)
        return cls(found, tuple(found.items()), operators, attributes, bool(attributes - called))

    def name_of(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        """Return the name of a call that a mode sees, or None if it is not in the set."""
        if func is F.relu:
            return "relu_" if kwargs.get("inplace") else "relu"
        if not torch.compiler.is_dynamo_compiling():
            return self.by_function.get(func)
        for known, name in self.pairs:
            if func is known:
                return name
        for known, is_swapped, name in self.operators:
            if func is known and isinstance(args[0], torch.Tensor) is not is_swapped:
                return name
        return None


def is_known_function(name: str) -> bool:
    """Return whether calls of a function named `name` can be hooked inside a module."""
    return name in ("relu", "relu_") or name in spelled_functions()


@cache
def spelled_functions() -> dict[str, list[Callable[..., Any]]]:
    """Return the functions that torch reports to modes, by name."""
    listed = chain.from_iterable(get_overridable_functions().values())
    attributes = (getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH"))
    functions: list[Callable[..., Any]] = [*_unlisted(), *listed, *attributes]
    found: dict[str, list[Callable[..., Any]]] = defaultdict(list)
    # keyed by name too, because torch.mm equals torch.dsmm
    for name, func in dict.fromkeys((spelling(one), one) for one in functions):
        found[name].append(func)
    return dict(found)


@cache
def _unlisted() -> dict[Callable[..., Any], None]:
    """Return functions that torch does not list, though it reports some of them to modes.

    For instance Tensor.unflatten, F.hardswish, torch.sparse.mm.
    """
    homes = (torch.Tensor, torch, F, torch.sparse, torch._C._nn)  # noqa: SLF001 (of functional)
    listed = set(chain.from_iterable(get_overridable_functions().values()))
    found = chain.from_iterable(vars(home).values() for home in homes)
    kinds = (FunctionType, BuiltinFunctionType)
    return dict.fromkeys(one for one in found if isinstance(one, kinds) and one not in listed)


def _show(functions: Iterable[Callable[..., Any]]) -> None:
    """Make compiled code report `functions`, by adding them to torch's list.

    Compiled code reports only listed functions, for instance F.sigmoid, which calls a method
    (torch/_dynamo/variables/torch.py, 2.13).
    """
    missing = [one for one in functions if one in _unlisted()]
    listed = get_overridable_functions()[F]
    listed += [one for one in missing if one not in listed]
    compiler = sys.modules.get("torch._dynamo.variables.torch")
    if compiler is not None:  # it keeps its own copy of the list
        compiler.get_overridable_functions().update(missing)


class _Reports(TorchFunctionMode):
    """Records the names of reported functions."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(spelling(func, kwargs))
        return func(*args, **(kwargs or {}))


@cache
def _operators() -> tuple[tuple[Callable[..., Any], bool, str], ...]:
    """Return the entries of `SpelledCalls.operators` for all operators.

    A mode sees `x + y` as a method of tensors, also in compiled code, but `torch.export` with
    `strict=True` reports `operator.add` (torch/_dynamo/variables/builtin.py, 2.13).
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
                    continue  # it takes other operands
                for reported in reports.names[:1]:
                    yield func, args[0] is not one, reported

    return tuple(dict.fromkeys(seen()))
