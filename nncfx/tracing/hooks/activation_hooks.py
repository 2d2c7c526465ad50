"""Hooks on activations, at a module's boundary if possible, else in a function mode.

An operation that is its module's only call is hooked at the inputs and the output of the module.
Any other operation needs a `TorchFunctionMode`, which is active while the module that makes the
call runs, and suspended while that module calls others. All state of a call is local to it, in
the mode or in a context variable.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from types import FrameType
from typing import Any, Final

import torch
from torch import nn
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils import checkpoint
from typing_extensions import override

from nncfx.errors import HookError
from nncfx.tracing.calls.call_numbers import (
    Counts,
    Site,
    call_site,
    calls_so_far,
    is_code_of,
    next_number,
    numbered_calls,
    visit_of,
)
from nncfx.tracing.calls.composite_functions import COMPOSITE, composite_apart
from nncfx.tracing.hooks.boundary_hooks import BoundaryHooks
from nncfx.tracing.hooks.chain import CallHooks, substitute
from nncfx.tracing.hooks.spelled_functions import SpelledCalls

CALLS: Final = "_nncf_calls"
"""The instance attribute that holds the `CallPlan` of a module."""

_ELSEWHERE: Final = "elsewhere"
"""Counted instead of a site for calls at sites that the trace does not have."""

_NOT_COMPILED: Final = (
    "There is a hook at an attribute of a tensor, such as x.T, which torch.compile does not "
    "report. Write the attribute as a call, as in x.transpose(0, 1), or remove the hook."
)


class OtherCallsError(HookError):
    """A compiled forward makes other calls than the traced one; another capture cannot help."""


@dataclass(frozen=True)
class CallPlan:
    """The hooks around and inside a module's forward.

    Attributes:
        module: The module's dotted name.
        boundary: Hooks around the module's calls, by number of the call.
        functions: Hooks around calls of functions, by function name, site of the call and number
            of earlier calls there.
        traced: Number of traced calls by function name and site, for all calls of functions that
            have hooks.
        on_floats: Number of traced calls on floats, by function name.
        varying: The keys of `traced` for which some traces had fewer calls.
        visits: Number of traced calls of the module in a forward of the model.
        is_steady: Whether all traces had as many.
        is_called_by_hooked: Whether the caller has `functions`, whose mode must then be suspended.
        counts: The plans of the modules whose calls this one, the root's, numbers.
        ranked: The hooks of `functions` as compiled code, which has no sites, finds them: by
            function, whether the call reads floats, and rank among such calls.
        watched: All torch functions that `functions` names.
        reported: Names of functions for which a warning about untraced calls was given.
    """

    module: str
    boundary: Mapping[int, BoundaryHooks] = field(default_factory=dict)
    functions: Mapping[tuple[str, Site, int], CallHooks] = field(default_factory=dict)
    traced: Mapping[tuple[str, Site], int] = field(default_factory=dict)
    on_floats: Mapping[str, int] = field(default_factory=dict)
    varying: frozenset[tuple[str, Site]] = frozenset()
    visits: int = 1
    is_steady: bool = True
    is_called_by_hooked: bool = False
    counts: tuple["CallPlan", ...] = ()
    ranked: Mapping[tuple[str, bool, int], CallHooks] = field(init=False, compare=False)
    watched: SpelledCalls = field(init=False, compare=False)
    reported: set[str] = field(init=False, compare=False, default_factory=set)

    def __post_init__(self) -> None:
        calls = self.functions.items()
        ranked = {(name, one.reads_floats, one.rank): one for (name, _, _), one in calls}
        object.__setattr__(self, "ranked", ranked)
        watched = SpelledCalls.of({name for name, _, _ in self.functions})
        object.__setattr__(self, "watched", watched)

    @override
    def __reduce__(self) -> Any:
        # leave out the watched functions, some of which cannot be pickled
        return (CallPlan, tuple(getattr(self, one.name) for one in fields(self) if one.init))

    @property
    def is_repeated(self) -> bool:
        """Whether the module is called more than once in a forward of the model."""
        return self.visits > 1

    @property
    def always(self) -> BoundaryHooks | None:
        """The hooks around every call of the module, if the plan has nothing else."""
        more = (self.functions, self.is_repeated, self.is_called_by_hooked, self.counts)
        return None if any(more) else self.boundary.get(0)

    def report(self, name: str, how: str) -> None:
        """Warn once that the function `name`, or "" for the module, is not called as traced."""
        if name not in self.reported:
            self.reported.add(name)
            what = f"calls {name} {how} it did" if name else f"is called {how} it was"
            warnings.warn(
                f"{self.module or 'The model'} {what} while traced. Hooks "
                "know the calls that were traced, and may miss some or be at others now. Trace "
                "these inputs too: nncfx.wrap(model, example_inputs, further_inputs=[...]). Loops "
                "over a batch must be as long; a part on its own has the hooks of its first run.",
                stacklevel=3,
            )

    def _check(self, counts: Counts, visit: int) -> None:
        """Warn about calls that the module did not make; raise an error if compiling or exporting.

        Compilation and export also trace code of torch.jit.script, and code can branch on them.
        """
        if _is_of_compiled(counts):
            if not self.is_repeated:
                self._check_compiled(counts)
            return
        own = ((name, site) for name, site, _ in self.functions if visit_of(site) == visit)
        for name, site in dict.fromkeys(own):
            found, times = counts.get((name, site), 0), self.traced[name, site]
            is_elsewhere = (name, _ELSEWHERE, visit) in counts
            if found == times or (name, site) in self.varying or not (found or is_elsewhere):
                continue
            if torch.compiler.is_compiling():
                raise self._other_calls(f"calls {name} at other places than")
            if not found:
                self.report(name, "at other places than")
            elif found < times:
                self.report(name, f"less often than the {times} times")

    def _check_visits(self, counts: Counts) -> None:
        """Warn that the module is not called as often as traced; raise an error if compiling."""
        made = counts.get("", 0)
        if not made:
            return
        if self.is_steady and made != self.visits:
            how = f"{'less' if made < self.visits else 'more'} often than the {self.visits} times"
            if torch.compiler.is_compiling():
                raise self._other_calls(f"is called {made} times, and {self.visits} times")
            self.report("", how)
        if _is_of_compiled(counts):
            self._check_compiled(counts)

    def _check_compiled(self, counts: Counts) -> None:
        for name, times in self.on_floats.items():
            found = counts.get(name, times)  # an uncalled function shifts no ranks
            if found != times and all(call[0] != name for call in self.varying):
                raise self._other_calls(f"calls {name} on floats {found} times, and {times} times")
        for name, reads_floats, rank in self.ranked:
            found = counts.get(_counted(name, reads_floats=reads_floats), 0)
            if name in self.watched.attributes and found <= rank:
                raise HookError(_NOT_COMPILED)

    def _other_calls(self, what: str) -> OtherCallsError:
        return OtherCallsError(
            f"While it is compiled or exported, {self.module or 'the model'} {what} when it was "
            "traced. Hooks would be missing. Write functions of torch.jit.script as plain ones, "
            "and call the same always, in training too (is_compiling and is_exporting of "
            "torch.compiler tell it); or wrap with inputs that take the path of an export, such "
            "as a mask with padding if masks of ones are left out; leave the scope out with "
            "ignored_scopes; or take the model, not a part that it runs repeatedly."
        )

    def call(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of `forward` with the hooks applied."""
        if not self.counts:
            return self._unnested(forward, args, kwargs)
        return numbered(self.counts, self._unnested, forward, args, kwargs)

    def _unnested(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        mode = _innermost() if self.is_called_by_hooked else None
        if mode is None:
            return self._hooked(forward, args, kwargs)
        if torch.compiler.is_compiling() or not _is_on_top(mode):
            return uncounted(self._hooked, forward, args, kwargs)
        # popping the mode saves its cost for the calls made here; compiled code cannot do that
        _pop_mode()  # type: ignore[no-untyped-call]  # torch leaves it so
        try:
            return self._hooked(forward, args, kwargs)
        finally:
            _push_mode(mode)  # type: ignore[no-untyped-call]  # as above

    def _hooked(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        counts = calls_so_far(self.module) if self.is_repeated else {}
        visit = next_number(counts, "") if self.is_repeated else 0
        if self.functions:
            if self.watched.reads_attribute and torch.compiler.is_dynamo_compiling():
                raise HookError(_NOT_COMPILED)
            is_eager = not torch.compiler.is_compiling()
            if is_eager and self.is_repeated and "torch._dynamo" in sys.modules:
                # compiled code would treat the present numbers as constants
                forward = torch.compiler.disable(forward)  # type: ignore[no-untyped-call]  # torch leaves it so
            with _SiteMode(self, counts, visit):
                result = forward(*args, **kwargs)
            self._check(counts, visit)
            return result
        if self.boundary:
            hooks = self.boundary.get(visit)
            if hooks is not None:
                return hooks.call(forward, args, kwargs)
        return forward(*args, **kwargs)


def numbered(
    plans: tuple[CallPlan, ...], call: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Return the result of `call`, in which the calls of the modules of `plans` are numbered."""
    with numbered_calls():
        result = call(*args, **kwargs)
        made = [(one, calls_so_far(one.module)) for one in plans]
    for one, counts in made:
        one._check_visits(counts)  # noqa: SLF001 (of this module)
    return result


def planned_forward(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `forward` that applies the module's `CallPlan` around `own`."""

    @wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        # missing in a copy without hooks whose instance has a forward derived from this one
        plan: CallPlan | None = args[0].__dict__.get(CALLS)
        return own(*args, **kwargs) if plan is None else plan.call(own, args, kwargs)

    return forward


def uncounted(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of `function` without numbering its calls among those of the model.

    Hooks of a weight compute where the weight is read, between the calls of the reading module,
    which can be another module than the weight's own.
    """
    mode = _innermost()
    if mode is None:
        return function(*args)
    mode.suspensions += 1
    try:
        return function(*args)
    finally:
        mode.suspensions -= 1


def _check_recomputation(call: str) -> None:
    """Raise an error if the present call will be repeated without hooks in the backward pass.

    torch.utils.checkpoint calls its function again, without the modes that were active. A module
    brings its own modes, but any other function would run without hooks.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (no public way)
    while frame is not None and not is_code_of(frame, _HOOKED):
        if frame.f_code.co_filename == checkpoint.__file__:
            raise HookError(
                f"There is a hook at {call}, which torch.utils.checkpoint calls again in the "
                "backward pass, without the hook. Give checkpoint a module instead of a "
                "function."
            )
        frame = frame.f_back


_HOOKED: Final = planned_forward(nn.Module.forward).__code__
_OWN_CALL: Final = CallPlan._hooked.__code__  # noqa: SLF001 (of this module)


class _SiteMode(TorchFunctionMode):
    """Applies hooks around the function calls of one module."""

    def __init__(self, plan: CallPlan, counts: Counts, visit: int) -> None:
        super().__init__()
        self.suspensions = 0
        self._plan = plan
        self._sites = plan.functions
        self._counts = counts
        self._visit = visit
        self._watched = plan.watched

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.suspensions:
            return _called(func, args, kwargs)
        if func is COMPOSITE:
            with self:
                return composite_apart(*args, **kwargs)
        name = self._watched.name_of(func, args, kwargs)
        if name is None:
            return _called(func, args, kwargs)
        hooks = self._hooks_at(name, args, kwargs)
        if hooks is None:
            return _called(func, args, kwargs)
        if not torch.compiler.is_compiling():
            _check_recomputation(f"{name} of {self._plan.module or 'the model'}")
        if hooks.before:
            (args, kwargs), _ = substitute((args, kwargs), hooks.before)
        result = _called(func, args, kwargs)
        return substitute(result, hooks.after)[0] if hooks.after else result

    def _hooks_at(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> CallHooks | None:
        """Return the hooks of this call of the function `name`, and count it."""
        if torch.compiler.is_dynamo_compiling():
            reads_floats = _holds_floats(args) or _holds_floats(tuple(kwargs.values()))
            rank = next_number(self._counts, _counted(name, reads_floats=reads_floats))
            return self._plan.ranked.get((name, reads_floats, rank))
        call = (name, call_site(sys._getframe(2), _OWN_CALL, self._visit))  # noqa: SLF001 (no public way)
        turn = next_number(self._counts, call)
        times = self._plan.traced.get(call)
        if times is None:
            self._counts[name, _ELSEWHERE, self._visit] = 1
        elif turn >= times:
            self._plan.report(name, f"more often than the {times} times")
        return self._sites.get((*call, turn))


def _is_of_compiled(counts: Counts) -> bool:
    """Return whether compiled code made `counts`, which may be checked behind a graph break."""
    if torch.compiler.is_dynamo_compiling():
        return True
    return any(bool(one) and isinstance(one, str) for one in counts)


def _counted(name: str, *, reads_floats: bool) -> str:
    return name if reads_floats else f"{name} of integers"


def _holds_floats(values: tuple[Any, ...] | list[Any]) -> bool:
    for one in values:
        if isinstance(one, torch.Tensor):
            if one.is_floating_point():
                return True
        elif isinstance(one, tuple | list) and _holds_floats(one):
            return True
    return False


_ASK_GRADIENT: Final = torch.Tensor.requires_grad.__set__  # type: ignore[attr-defined]  # a descriptor


def _called(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if func is torch.Tensor.unflatten:
        # torch.compile supports the method, but not the function, which calls super()
        return args[0].unflatten(*args[1:], **kwargs)
    try:
        return func(*args, **kwargs)
    except RuntimeError:
        # speech encoders set requires_grad on their input, which after a hook already has it
        if func == _ASK_GRADIENT and args[1] and args[0].requires_grad:
            return None
        raise


def _innermost() -> _SiteMode | None:
    for mode in reversed(_get_current_function_mode_stack()):  # type: ignore[no-untyped-call]  # torch leaves it so
        if isinstance(mode, _SiteMode):
            return mode
    return None


def _is_on_top(mode: _SiteMode) -> bool:
    return bool(_get_current_function_mode_stack()[-1] is mode)  # type: ignore[no-untyped-call]  # as above


# after a graph break, each call of the mode would be compiled on its own, and calls of attributes
# would return other results than in eager mode
_frames = torch._C._dynamo.eval_frame  # noqa: SLF001 (as torch._dynamo.skip, without its import)
_frames.set_code_exec_strategy(
    _SiteMode.__torch_function__.__code__,
    _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.SKIP),  # noqa: SLF001 (as above)
)
