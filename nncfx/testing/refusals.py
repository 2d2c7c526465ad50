"""What a suite asks of an error: its class and words."""

import re
from collections.abc import Callable

__all__ = ["check_refused"]


def check_refused(
    call: Callable[[], object], error: type[Exception] | tuple[type[Exception], ...], words: str
) -> None:
    """Raise an `AssertionError` unless `call` raises `error` with the pattern `words` in it."""
    text = None
    try:
        call()
    except error as caught:
        text = str(caught)
    assert text is not None, f"no {error} was raised, which should have said '{words}'"
    assert re.search(words, text), f"the error does not say '{words}': {text}"
