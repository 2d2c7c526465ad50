"""Hooks that are told how the whole model is called, before its forward begins."""

import abc
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

from torch import nn

CALL_HOOKS: Final = "_nncf_call_hooks"
"""The instance attribute of a root: the hooks that are told of its calls."""


class CallHook(nn.Module, abc.ABC):
    """A hook that is told, wherever it stands, of each call of the model that it stands in."""

    @abc.abstractmethod
    def before_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note what the forward of the model is about to be given; change none of it.

        Where the model's instance has a forward of its own, this may come twice in a call: with
        what that is given, and then with what it gives to the one of the class.
        """


def telling_calls(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `forward` of a root that tells its call hooks, then does what `own` does."""

    @wraps(own)
    def forward(*args: Any, **kwargs: Any) -> Any:
        _tell(args, kwargs)
        return own(*args, **kwargs)

    return forward


def telling_hidden_calls(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `__call__` of a root that tells its call hooks where its forward may not.

    A forward set on the instance, as trainers set one, hides that of the class.
    """

    @wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "forward" in args[0].__dict__:
            _tell(args, kwargs)
        return own(*args, **kwargs)

    return call


def _tell(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    # none in a copy without hooks whose instance keeps a forward that is made of `telling_calls`
    hooks: tuple[CallHook, ...] = args[0].__dict__.get(CALL_HOOKS, ())
    for hook in hooks:
        hook.before_call(args[1:], kwargs)
