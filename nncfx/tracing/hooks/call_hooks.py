"""Hooks that are notified of calls of the whole model, before its forward begins."""

import abc
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

from torch import nn

from nncfx.tracing.hooks.forward_method import forward_method

CALL_HOOKS: Final = "_nncf_call_hooks"
"""The instance attribute of a root that holds the hooks to notify of its calls."""


class CallHook(nn.Module, abc.ABC):
    """A hook that is notified of each call of its model, wherever it is inserted."""

    @abc.abstractmethod
    def before_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Receive the arguments of the model's forward before it runs; must not change them.

        If the model's instance has its own forward, this can be called twice: with its arguments,
        and then with those that it passes to the forward of the class.
        """


def telling_calls(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `forward` for a root that notifies its call hooks, then calls `own`."""

    @wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        _tell(args, kwargs)
        return own(*args, **kwargs)

    return forward


def telling_hidden_calls(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `__call__` for a root that notifies its call hooks if its forward may not.

    A function set on the instance, as some trainers do, hides the forward of the class.
    """

    @wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        if forward_method(args[0]) is None:
            _tell(args, kwargs)
        return own(*args, **kwargs)

    return call


def _tell(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    # missing in a copy without hooks whose instance has a forward derived from `telling_calls`
    hooks: tuple[CallHook, ...] = args[0].__dict__.get(CALL_HOOKS, ())
    for hook in hooks:
        hook.before_call(args[1:], kwargs)
