"""Number the calls of a module or a function within one forward of a wrapped model.

The numbers are local to the forward and to the thread: a context variable holds them. Compiled
code knows no context variables; there a mode holds them, which costs nothing once compiled.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from typing_extensions import override

from nncfx.errors import HookError

__all__ = ["calls_so_far", "next_number", "numbered_calls"]

_Calls: TypeAlias = dict[str, dict[str, int]]
"""Module to function to calls so far; the module's own calls under the empty name."""

_CALLS: Final[ContextVar[_Calls | None]] = ContextVar("_CALLS", default=None)


def numbered_calls() -> AbstractContextManager[Any]:
    """Return a context in which calls are numbered from 0."""
    return _CallsMode() if torch.compiler.is_compiling() else _fresh()


def calls_so_far(module: str) -> dict[str, int]:
    """Return, to be updated, the calls so far in this forward by `module` of each function.

    A module that is called by itself, outside the model's forward, starts from 0.

    Raises:
        HookError: it is called in a backward pass, where nobody knows the calls before.
    """
    if torch.compiler.is_compiling():
        calls = _compiled_calls()
    else:
        calls = _CALLS.get()
        task = torch._C._current_graph_task_id()  # noqa: SLF001 (as torch.utils.checkpoint does)
        if calls is None and task != -1:
            raise HookError(
                f"'{module}' is called several times in a forward, has hooks at some of its "
                "calls, and torch.utils.checkpoint recomputes it without saying which call "
                "it repeats. Hook only its weights, or do not recompute.",
            )
    return {} if calls is None else calls.setdefault(module, {})


def next_number(calls: dict[str, int], name: str) -> int:
    """Return the number of this call of `name`, and count it."""
    number = calls.get(name, 0)
    calls[name] = number + 1
    return number


@contextmanager
def _fresh() -> Iterator[None]:
    token = _CALLS.set({})
    try:
        yield
    finally:
        _CALLS.reset(token)


class _CallsMode(TorchFunctionMode):
    """Holds what `_CALLS` holds, where code is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: _Calls = {}

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _compiled_calls() -> _Calls | None:
    for mode in reversed(_get_current_function_mode_stack()):  # type: ignore[no-untyped-call]  # torch leaves it so
        if isinstance(mode, _CallsMode):
            return mode.calls
    return None
