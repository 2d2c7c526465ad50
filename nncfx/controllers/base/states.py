"""Check the states of controllers and schedulers before they are loaded."""

from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any, Final

from nncfx.errors import StorageError

CONTROLLER: Final = ("algorithm", "level", "scheduler")
"""The keys of every controller's state; some have more."""


def check_keys(
    state: Mapping[str, Any],
    expected: Collection[str],
    source: str,
    fix: str = "",
    *,
    optional: Collection[str] = (),
) -> None:
    """Check that `state` has exactly the keys `expected`.

    Args:
        state: The state to check.
        expected: Its keys.
        source: Description of `state`, for the message.
        fix: A sentence with further advice.
        optional: Keys that it can have too.

    Raises:
        StorageError: it has other keys; the message names `source`, the missing and the unexpected
            keys.
    """
    if not isinstance(state, Mapping):
        raise StorageError(
            f"{source} is a {type(state).__name__}; it must be the dict that state_dict() "
            "returned."
        )
    missing = sorted(set(expected) - set(state))
    unexpected = sorted(set(state) - {*expected, *optional})
    if missing or unexpected:
        raise StorageError(
            f"{source} does not fit: missing {missing}, unexpected {unexpected}. Load the state "
            f"that belongs to the same config.{fix and ' '}{fix}"
        )


def check_kinds(state: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Check that the values of a `state` from a file have the types `kinds`.

    Raises:
        StorageError: a value has another type; the message names it.
    """
    for key, kind in kinds.items():
        value = state[key]
        # True is an int to Python
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
            names = " or ".join("null" if one is NoneType else one.__name__ for one in kind)
            raise StorageError(
                f"The state is damaged: '{key}' is {str(value)[:40]!r}, where {names} is "
                "expected. Write it again."
            )
