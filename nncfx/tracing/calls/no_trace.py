"""Leave a part of a forward out of the graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import torch

_LEFT_OUT: Final[ContextVar[bool]] = ContextVar("_LEFT_OUT", default=False)


@contextmanager
def no_nncf_trace() -> Iterator[None]:
    """Leave the torch calls in a context, or in a decorated function, out of the graph.

    The result of a call inside is identified with its first tensor argument, so the graph stays
    connected. Calls inside cannot be hooked; the model computes the same.
    To leave out a library function without changing its source, replace it by the decorated
    function where it is looked up, for instance `library.nms = no_nncf_trace()(library.nms)`.

    >>> from nncfx.tracing import trace
    >>> class Net(torch.nn.Module):
    ...     def forward(self, x):
    ...         with no_nncf_trace():
    ...             x = x.exp().log()
    ...         return x.relu()
    >>> trace(Net(), torch.ones(2)).addresses
    ['Net/relu_0']
    """
    if torch.compiler.is_compiling():  # no context variables and no traces there
        yield
        return
    token = _LEFT_OUT.set(True)
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


def is_left_out() -> bool:
    """Return whether present calls are left out of a trace."""
    return _LEFT_OUT.get()
