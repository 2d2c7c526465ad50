"""States of controllers and schedulers: plain values, checked before they are taken."""

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
    mend: str = "",
    *,
    optional: Collection[str] = (),
) -> None:
    """Check that `state` has exactly the keys `expected`.

    Args:
        state: To be checked.
        expected: Its keys.
        source: What `state` is, for the message.
        mend: What else may help, a sentence.
        optional: Keys that it may have, too.

    Raises:
        StorageError: it has not; the message names `source`, the missing and the unexpected keys.
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
            f"that belongs to the same config.{mend and ' '}{mend}"
        )


def check_kinds(state: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Check that values of a `state` that a file held are of the `kinds` asked for.

    Raises:
        StorageError: one is not; the message names it.
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
