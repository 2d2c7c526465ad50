"""States of controllers and schedulers: plain values, checked before they are taken."""

from collections.abc import Collection, Mapping
from typing import Any

from nncfx.errors import StorageError


def check_keys(
    state: Mapping[str, Any], expected: Collection[str], source: str, mend: str = ""
) -> None:
    """Check that `state` has exactly the keys `expected`.

    Args:
        state: To be checked.
        expected: Its keys.
        source: What `state` is, for the message.
        mend: What else may help, a sentence.

    Raises:
        StorageError: it has not; the message names `source`, the missing and the unexpected keys.
    """
    if not isinstance(state, Mapping):
        raise StorageError(
            f"{source} is a {type(state).__name__}; it must be the dict that state_dict() "
            "returned."
        )
    missing = sorted(set(expected) - set(state))
    unexpected = sorted(set(state) - set(expected))
    if missing or unexpected:
        raise StorageError(
            f"{source} does not fit: missing {missing}, unexpected {unexpected}. Load the state "
            f"that belongs to the same config.{mend and ' '}{mend}"
        )
