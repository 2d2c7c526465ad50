"""Leave a part of a forward out of the graph: `no_nncf_trace`."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import torch

_LEFT_OUT: Final[ContextVar[bool]] = ContextVar("_LEFT_OUT", default=False)


@contextmanager
def no_nncf_trace() -> Iterator[None]:
    """Return a context, also a decorator, whose calls of torch are no operations of the graph.

    What a call inside returns counts as what its first tensor argument was, so that the graph
    stays connected. Nothing inside can be hooked; the model computes what it did.
    A function of a library is left out without changing its source: wherever it is looked
    up, put the decorated one, as in `library.nms = no_nncf_trace()(library.nms)`.

    >>> from nncfx.tracing import trace
    >>> class Net(torch.nn.Module):
    ...     def forward(self, x):
    ...         with no_nncf_trace():
    ...             x = x.exp().log()
    ...         return x.relu()
    >>> trace(Net(), torch.ones(2)).addresses
    ['Net/relu_0']
    """
    if torch.compiler.is_compiling():  # compiled code knows no context variables, and no traces
        yield
        return
    token = _LEFT_OUT.set(True)
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)


def is_left_out() -> bool:
    """Return whether the calls made now are left out of a trace."""
    return _LEFT_OUT.get()
