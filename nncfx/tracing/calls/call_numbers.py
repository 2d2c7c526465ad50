"""Distinguish the calls of a module or a function within one forward of a wrapped model.

A call of a function is identified by its place in the code and the number of earlier calls there,
because a forward that fills a cache, takes a branch or computes a mask for an export makes other
calls at other places. In compiled code, which cannot find its place, calls are only numbered.

The numbers are local to the forward and to the thread, in a context variable. Compiled code does
not support context variables, so a mode holds the numbers there, at no cost once compiled.
"""

import inspect
import os
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias, TypeVar

import torch
from torch.overrides import BaseTorchFunctionMode, _get_current_function_mode_stack

from nncfx.errors import HookError

Site: TypeAlias = tuple[int, ...]
"""Where a module's forward makes a call: the line of each frame, the innermost first.

If the module was called before in the forward of the model, minus the number of these calls comes
last. So a call that one of them leaves out does not shift those of the next.

Calls on one line are distinguished by their order. Instruction offsets would be more precise, but
Python 3.11 changes them for calls that it specializes.
"""

Counts: TypeAlias = dict[Hashable, int]
"""Calls so far by function, or by function and site; the module's own calls under ""."""

_Calls: TypeAlias = dict[str, Counts]
_Call = TypeVar("_Call", bound=Hashable)

_BETWEEN: Final = (
    torch.nn.modules.module.__file__,
    *(str(Path(torch.__file__).parent / one) + os.sep for one in ("_dynamo", "fx")),
    str(Path(__file__).parents[2]) + os.sep,
)
"""Files of code that runs between a forward and its caller in tracing, hooks or compilation."""

_PASSES_ALL: Final = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
"""Flags of the code of a function that takes any arguments."""

_LINES: Final[dict[int, tuple[CodeType, dict[int, int]]]] = {}
"""By the `id` of code: the code, kept so that no other gets its `id`, and lines by instruction.

`frame.f_lineno` searches all lines of its code each time.
"""

_CODE_LIMIT: Final = 10_000
"""Number of code objects in `_LINES` at which it is emptied."""

_CALLS: Final[ContextVar[_Calls | None]] = ContextVar("_CALLS", default=None)


def numbered_calls() -> AbstractContextManager[Any]:
    """Return a context in which calls are numbered from 0."""
    return _CallsMode() if torch.compiler.is_compiling() else _fresh()


def are_numbered() -> bool:
    """Return whether calls are numbered here and now."""
    calls = _compiled_calls() if torch.compiler.is_compiling() else _CALLS.get()
    return calls is not None


def is_code_of(frame: FrameType, code: CodeType) -> bool:
    """Return whether `frame` runs `code`, or code that torch.compile made from it."""
    runs = frame.f_code
    return runs is code or (
        runs.co_firstlineno == code.co_firstlineno and runs.co_filename == code.co_filename
    )


def call_site(frame: FrameType | None, outermost: FrameType | CodeType, visit: int = 0) -> Site:
    """Return the site of the code that runs in `frame`, relative to the frame `outermost`.

    Args:
        frame: The frame of the function that makes a call.
        outermost: The frame that calls the module's forward, or its code.
        visit: The number of earlier calls of the module in the forward of the model.
    """
    found: list[int] = []
    own = outermost if isinstance(outermost, CodeType) else None
    while frame is not None and frame is not outermost:
        if own is not None and is_code_of(frame, own):
            break
        try:
            line = _LINES[id(frame.f_code)][1][frame.f_lasti]
        except KeyError:
            line = _line(frame)
        if line:
            found.append(line)
        frame = frame.f_back
    return (*found, -visit) if visit else tuple(found)


def visit_of(site: Site) -> int:
    """Return the number of earlier calls of the module that makes the call at `site`."""
    return max(0, -site[-1]) if site else 0


def _line(frame: FrameType) -> int:
    """Remember and return the line that `frame` is at; 0 between a forward and its caller.

    It is also 0 in a decorator's function, which may call what it decorates at two lines: from a
    cache, or anew if it is exported.
    """
    code = frame.f_code
    line = 0 if runs_between(code) or is_decorator(code) else frame.f_lineno
    if len(_LINES) == _CODE_LIMIT:
        _LINES.clear()
    _LINES.setdefault(id(code), (code, {}))[1][frame.f_lasti] = line
    return line


def runs_between(code: CodeType) -> bool:
    """Return whether `code` runs between a forward and its caller, and is not the model's."""
    return code.co_filename.startswith(_BETWEEN)


def is_decorator(code: CodeType) -> bool:
    """Return whether `code` takes any arguments, and nothing else, for a function it encloses."""
    takes_all = not code.co_argcount and code.co_flags & _PASSES_ALL == _PASSES_ALL
    return takes_all and bool(code.co_freevars)


class CallNumbers:
    """The numbers of function calls in their scopes, as assigned by traces.

    A call that an earlier trace made keeps its number.
    """

    def __init__(self, known: "CallNumbers | None" = None) -> None:
        self._made: list[tuple[Hashable, int]] = []
        self._given: Counts = {}
        # what `known` assigned to calls that were not made again so far, the next number last
        self._left: dict[Hashable, list[int]] = {}
        if known is not None:
            self._made += known._made  # noqa: SLF001 (of this class)
            self._given |= known._given  # noqa: SLF001 (as above)
        for call, number in reversed(self._made):
            self._left.setdefault(call, []).append(number)

    def number(self, scope: str, function: str, site: Site) -> int:
        """Return the number of the next call of `function` at `site` in `scope`."""
        call = (scope, function, site)
        if self._left and (left := self._left.get(call)):
            return left.pop()
        number = next_number(self._given, (scope, function))
        self._made.append((call, number))
        return number


def calls_so_far(module: str) -> Counts:
    """Return the mutable counts of calls by `module` so far in this forward.

    A module that is called outside of any numbering starts from 0.

    Raises:
        HookError: it is called in a backward pass, where earlier calls are unknown, or in a part
            of the model that is compiled on its own. Unless `fullgraph` is set, the compiler then
            runs that part uncompiled.
    """
    if torch.compiler.is_compiling():
        calls = _compiled_calls()
        if calls is None and torch.compiler.is_dynamo_compiling():
            raise HookError(
                f"'{module}' is called several times in a forward and has hooks at some of its "
                "calls: a part that is compiled by itself does not know which call it is. "
                "Compile the whole model."
            )
    else:
        calls = _CALLS.get()
        task = torch._C._current_graph_task_id()  # noqa: SLF001 (as torch.utils.checkpoint does)
        if calls is None and task != -1:
            raise HookError(
                f"'{module}' is called several times in a forward, has hooks at some of its "
                "calls, and torch.utils.checkpoint recomputes it without saying which call "
                "it repeats. Hook only its weights, or do not recompute."
            )
    return {} if calls is None else calls.setdefault(module, {})


def next_number(calls: dict[_Call, int], call: _Call) -> int:
    """Return the count of `call`, then increment it."""
    number = calls.get(call, 0)
    calls[call] = number + 1
    return number


@contextmanager
def _fresh() -> Iterator[None]:
    token = _CALLS.set({})
    try:
        yield
    finally:
        _CALLS.reset(token)


class _CallsMode(BaseTorchFunctionMode):
    """Holds the counts of `_CALLS` in compiled code."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: _Calls = {}


def _compiled_calls() -> _Calls | None:
    for mode in reversed(_get_current_function_mode_stack()):  # type: ignore[no-untyped-call]  # torch leaves it so
        if isinstance(mode, _CallsMode):
            return mode.calls
    return None
