"""Switch hooked reads of weights on while a forward of a model with hooks runs, per thread.

Elsewhere the attribute is the parameter itself, so initialization, clamps, copies and gradients
reach it. The root of the model, each module with a hooked weight, and each module that contains a
hooked module has a forward that switches hooked reads on. So a part of the model that is called on
its own computes with its hooks, and so does a part that `torch.utils.checkpoint` calls again in
the backward pass. Except there, such a part also numbers the calls of modules that are called
several times, as the root does. A method other than a forward that reads a weight and is called
from outside reads the parameter, because it cannot be told from code that is about to write to it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import torch
from torch import fx

from nncfx.errors import TracingError
from nncfx.tracing.calls.call_numbers import are_numbered
from nncfx.tracing.hooks.activation_hooks import numbered

NUMBERED: Final = "_nncf_numbered"
"""The instance attribute of a part that holds the plans whose calls it numbers on its own."""


class _Reads(threading.local):
    """Whether this thread reads weights hooked, as an attribute that torch.compile can trace."""

    def __init__(self) -> None:
        # set in every thread, before compiled code reads it
        self.hooked = False


_READS: Final = _Reads()


def are_hooked() -> bool:
    """Return whether hooks on weights apply here and now."""
    if _READS.hooked:
        return True
    if torch.compiler.is_compiling():
        return torch.compiler.is_exporting()
    # torch.utils.checkpoint repeats a function without the module around it
    return _is_in_backward()


def _is_in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 (as checkpoint does)


@contextmanager
def hooked_reads() -> Iterator[None]:
    """Let this thread read weights as a forward does, within the context."""
    before = _READS.hooked
    _READS.hooked = True
    try:
        yield
    finally:
        _READS.hooked = before


def reading_hooked(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method `own` of a module, with hooks on weights applied while it runs."""

    @wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        # an exported program must not have side effects, and reads hooked anyway
        if _READS.hooked:
            return own(*args, **kwargs)
        plans = args[0].__dict__.get(NUMBERED)
        if torch.compiler.is_exporting():
            if plans is None or are_numbered():
                return own(*args, **kwargs)
            return numbered(plans, own, *args, **kwargs)
        if not torch.compiler.is_compiling():
            _check_no_symbols(args, kwargs)
        _READS.hooked = True
        try:
            # compiled code cannot ask for the backward pass, but checks the number of calls
            if plans is None or (not torch.compiler.is_compiling() and _is_in_backward()):
                return own(*args, **kwargs)
            return numbered(plans, own, *args, **kwargs)
        finally:
            _READS.hooked = False

    return forward


def _check_no_symbols(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if any(isinstance(one, fx.Proxy) for one in (*args, *kwargs.values())):
        raise TracingError(
            f"torch.fx.symbolic_trace of a {type(args[0]).__name__} with hooks would lose them. "
            "Trace what nncfx.strip(model) or controller.strip() returns, or use "
            "torch.export.export(model, args), which keeps them."
        )
