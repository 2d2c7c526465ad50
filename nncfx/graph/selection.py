"""Select operations by address, scope, function or regular expression."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from nncfx.errors import did_you_mean
from nncfx.graph.operations import Operation
from nncfx.untrusted import REGULAR, is_found

_FUNCTION: Final = "{function}"


def matches(pattern: str, operation: Operation) -> bool:
    """Return whether `pattern` selects `operation`.

    A pattern that contains `{re}` is, without it, a regular expression searched for anywhere in
    the address. A pattern that begins with `{function}` continues with the exact name of a
    function, as in `{function}linear`. Any other pattern is an exact address or an exact scope
    (not a prefix of one).

    Raises:
        GraphError: the regular expression does not compile, or takes too long.
    """
    if REGULAR in pattern:
        return is_found(pattern, operation.address)
    if pattern.startswith(_FUNCTION):
        return pattern.removeprefix(_FUNCTION) == operation.function
    return pattern in (operation.address, operation.scope)


def select(operations: Sequence[Operation], patterns: Iterable[str]) -> list[Operation]:
    """Return the operations that at least one of `patterns` selects, in execution order.

    Raises:
        GraphError: a regular expression does not compile, or takes too long.
    """
    wanted = list(patterns)
    return [one for one in operations if any(matches(pattern, one) for pattern in wanted)]


def unmatched(operations: Sequence[Operation], patterns: Iterable[str]) -> list[str]:
    """Return the `patterns` that select nothing, in the given order.

    Raises:
        GraphError: a regular expression does not compile, or takes too long.
    """
    return [one for one in patterns if not any(matches(one, each) for each in operations)]


def hint(operations: Sequence[Operation], pattern: str) -> str:
    """Return " Did you mean 'x'?" with a suggestion for `pattern`, which selects nothing.

    Recognized are the name of a function, the dotted name of a module or of a tensor in it, and
    the class of modules; otherwise the address or scope of the nearest spelling is suggested. ""
    if nothing is near.
    """
    name = pattern.removeprefix(_FUNCTION).strip("{}")
    functions = dict.fromkeys(one.function for one in operations)
    if name in functions or pattern.startswith(_FUNCTION):
        return did_you_mean(_FUNCTION + name, [_FUNCTION + one for one in functions])
    if name in {one.module_type for one in operations}:
        return _meant(REGULAR + re.escape(f"{name}["))
    scopes = dict.fromkeys(one.scope for one in operations)
    by_module = _scopes_by_module(operations)
    for module in (name, name.rpartition(".")[0]):
        scope = by_module.get(module)
        if module and scope is not None:
            return _meant(scope if scope in scopes else f"{REGULAR}^{re.escape(scope)}/")
    return did_you_mean(pattern, [*(one.address for one in operations), *scopes])


def _meant(pattern: str) -> str:
    return did_you_mean(pattern, [pattern])


def _scopes_by_module(operations: Sequence[Operation]) -> dict[str, str]:
    """Return the scopes of modules that run and of their parents, by dotted name."""
    found: dict[str, str] = {}
    for operation in operations:
        module, scope = operation.module, operation.scope
        while module and module not in found:
            found[module] = scope
            module, scope = module.rpartition(".")[0], scope.rpartition("/")[0]
    return found
