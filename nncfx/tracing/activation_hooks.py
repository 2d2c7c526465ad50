"""Hooks on activations: at a module's boundary where possible, else in a mode around the module.

An operation that is its module's only call is hooked by hooking what enters and leaves the
module. Any other operation needs a `TorchFunctionMode`, which is on while the module that makes
the call runs, and suspended while the modules run that it calls in turn. All state of a call is
local to it: on the mode, or in a context variable.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    get_overridable_functions,
)
from typing_extensions import override

from nncfx.tracing.hook_chain import HookChain, substitute
from nncfx.tracing.interception import APART
from nncfx.tracing.spelling import spelling

__all__ = ["CALLS", "BoundaryHooks", "CallHooks", "CallPlan", "hooked_forward"]

CALLS: Final = "_nncf_calls"
"""The instance attribute: the `CallPlan` of a module."""

_Forward: TypeAlias = Callable[..., Any]

_FORWARDS: ContextVar[dict[str, dict[str, int]] | None] = ContextVar("_FORWARDS", default=None)
"""Per forward of a wrapped model: module to function to calls so far."""


@dataclass(frozen=True)
class CallHooks:
    """Hooks around one call of a torch function, by port."""

    before: Mapping[int, HookChain] = field(default_factory=dict)
    after: Mapping[int, HookChain] = field(default_factory=dict)


@dataclass(frozen=True)
class BoundaryHooks:
    """Hooks around one call of a module: by argument, and on the result."""

    arguments: Mapping[int | str, HookChain] = field(default_factory=dict)
    result: HookChain | None = None

    def call(self, forward: _Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what `forward` returns, hooked."""
        if self.arguments:
            positional = list(args)
            for key, chain in self.arguments.items():
                if isinstance(key, int):
                    positional[key] = chain(positional[key])
                else:
                    kwargs[key] = chain(kwargs[key])
            args = tuple(positional)
        result = forward(*args, **kwargs)
        return result if self.result is None else self.result(result)


@dataclass(frozen=True)
class CallPlan:
    """What happens around a module's forward.

    Attributes:
        module: The module's dotted name.
        boundary: Number of the module's call to hooks around it.
        functions: Function spelling and number of its call to hooks around that.
        is_repeated: The module is called more than once in a forward of the model, so that calls
            are numbered across its own calls.
        is_called_by_hooked: The caller has `functions`; they do not see what this module calls.
        counts: This is the root, and some module's calls are numbered.
    """

    module: str
    boundary: Mapping[int, BoundaryHooks] = field(default_factory=dict)
    functions: Mapping[tuple[str, int], CallHooks] = field(default_factory=dict)
    is_repeated: bool = False
    is_called_by_hooked: bool = False
    counts: bool = False

    def call(self, forward: _Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what `forward` returns, with the hooks applied."""
        if self.counts:
            with _counting():
                return self._unnested(forward, args, kwargs)
        return self._unnested(forward, args, kwargs)

    def _unnested(self, forward: _Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.is_called_by_hooked:
            mode = _innermost()
            if mode is not None:
                mode.suspensions += 1
                try:
                    return self._hooked(forward, args, kwargs)
                finally:
                    mode.suspensions -= 1
        return self._hooked(forward, args, kwargs)

    def _hooked(self, forward: _Forward, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.functions:
            counts = _counts(self.module) if self.is_repeated else {}
            with _SiteMode(self.functions, counts):
                return forward(*args, **kwargs)
        if self.boundary:
            number = _next(_counts(self.module), "") if self.is_repeated else 0
            hooks = self.boundary.get(number)
            if hooks is not None:
                return hooks.call(forward, args, kwargs)
        return forward(*args, **kwargs)


def hooked_forward(original: type[nn.Module]) -> _Forward:
    """Return the `forward` with which a subclass of `original` follows its `CallPlan`."""
    own = original.forward

    @wraps(own)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            return own(self, *args, **kwargs)

        return self.__dict__[CALLS].call(run, args, kwargs)

    return forward


class _SiteMode(TorchFunctionMode):
    """Applies hooks around calls of functions that one module makes."""

    def __init__(self, sites: Mapping[tuple[str, int], CallHooks], counts: dict[str, int]) -> None:
        super().__init__()
        self.suspensions = 0
        self._sites = sites
        self._counts = counts
        self._watched = _watched(frozenset(name for name, _ in sites))

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self.suspensions:
            return func(*args, **kwargs)
        apart = APART.get(func)
        if apart is not None:
            with self:
                return apart(*args, **kwargs)
        name = self._watched.get(func)
        if func is F.relu:
            name = "relu_" if kwargs.get("inplace") else "relu"
        if name is None:
            return func(*args, **kwargs)
        hooks = self._sites.get((name, _next(self._counts, name)))
        if hooks is None:
            return func(*args, **kwargs)
        if hooks.before:
            (args, kwargs), _ = substitute((args, kwargs), hooks.before)
        result = func(*args, **kwargs)
        return substitute(result, hooks.after)[0] if hooks.after else result


def _innermost() -> _SiteMode | None:
    for mode in reversed(_get_current_function_mode_stack()):  # type: ignore[no-untyped-call]  # torch leaves it so
        if isinstance(mode, _SiteMode):
            return mode
    return None


@contextmanager
def _counting() -> Iterator[None]:
    token = _FORWARDS.set({})
    try:
        yield
    finally:
        _FORWARDS.reset(token)


def _counts(module: str) -> dict[str, int]:
    forward = _FORWARDS.get()
    # a module called by itself, outside the model's forward, starts from 0
    return {} if forward is None else forward.setdefault(module, {})


def _next(counts: dict[str, int], name: str) -> int:
    number = counts.get(name, 0)
    counts[name] = number + 1
    return number


@cache
def _watched(names: frozenset[str]) -> dict[Callable[..., Any], str]:
    """Function object to spelling, for all of torch's functions that are spelt so.

    Compiled code looks functions up by identity; it may not read their names.
    """
    return {func: name for func, name in _spellings().items() if name in names}


@cache
def _spellings() -> dict[Callable[..., Any], str]:
    functions = (func for each in get_overridable_functions().values() for func in each)
    table = {func: spelling(func) for func in functions}
    return table | {getattr(torch.Tensor, name).__get__: name for name in ("T", "mT", "H", "mH")}
