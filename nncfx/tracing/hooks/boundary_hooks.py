"""Hooks on the arguments and the result of a module's calls.

Most hooks apply at every call, to the first argument, the result or both. These are stored in the
module itself, so no plan needs to be looked up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from typing import Any, Final

from nncfx.tracing.hooks.chain import HookChain, carried

BEFORE: Final = "_nncf_before"
"""The instance attribute of the hooks on the first argument, for `carried`."""

AFTER: Final = "_nncf_after"
"""The instance attribute of the hooks on the result."""


class Around(StrEnum):
    """How the class of a module wraps its `forward`."""

    NOTHING = "nothing"
    ARGUMENT = "argument"
    RESULT = "result"
    BOTH = "both"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class BoundaryHooks:
    """Hooks around one call of a module, by argument and on the result."""

    arguments: Mapping[int | str, HookChain] = field(default_factory=dict)
    result: HookChain | None = None

    @property
    def around(self) -> Around:
        """The simplest kind that applies these hooks at every call."""
        if not self.arguments:
            return Around.RESULT
        if tuple(self.arguments) != (0,):
            return Around.PLAN
        return Around.ARGUMENT if self.result is None else Around.BOTH

    @property
    def chains(self) -> dict[str, HookChain]:
        """The chains that `direct_forward` reads, by instance attribute."""
        found = {BEFORE: self.arguments.get(0), AFTER: self.result}
        return {name: chain for name, chain in found.items() if chain is not None}

    def call(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of `forward` with hooks; `args` begin with the module itself."""
        positional = list(args)
        for key, hooks in self.arguments.items():
            if isinstance(key, int):
                positional[key + 1] = hooks.apply(positional[key + 1])
            else:
                kwargs[key] = hooks.apply(kwargs[key])
        result = forward(*positional, **kwargs)
        return result if self.result is None else self.result.apply(result)


def direct_forward(own: Callable[..., Any], around: Around) -> Callable[..., Any]:
    """Return `own` wrapped to apply the hooks stored in its module."""
    made = own
    if around in {Around.ARGUMENT, Around.BOTH}:
        made = _on_argument(made)
    if around in {Around.RESULT, Around.BOTH}:
        made = _on_result(made)
    return wraps(own)(made)


def _on_argument(own: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        hooked = carried(args[0], BEFORE, args[1])
        return own(args[0], hooked, *args[2:], **kwargs)

    return forward


def _on_result(own: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return carried(args[0], AFTER, own(*args, **kwargs))

    return forward
