"""Select operations by pattern: an address, a scope, a function, or a regular expression."""

from collections.abc import Iterable, Sequence
from typing import Final

from nncfx.graph.operations import Operation
from nncfx.untrusted import REGULAR, is_found

__all__ = ["matches", "select", "unmatched"]

_FUNCTION: Final = "{function}"


def matches(pattern: str, operation: Operation) -> bool:
    """Return whether `pattern` selects `operation`.

    A pattern that contains `{re}` is, without it, a regular expression searched for anywhere in
    the address. One that begins with `{function}` goes on with the exact name of a function, as
    in `{function}linear`. Any other is an exact address or an exact scope (not a prefix of one).

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
    """Return those of `patterns` that select nothing, in the order given.

    Raises:
        GraphError: a regular expression does not compile, or takes too long.
    """
    return [one for one in patterns if not any(matches(one, each) for each in operations)]
