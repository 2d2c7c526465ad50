"""Reads untrusted data with limits on size, depth and time."""

import json
import math
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import regex

from nncfx.errors import GraphError

__all__ = ["REGULAR", "inflate", "is_found", "read_json"]

REGULAR: Final = "{re}"
"""The prefix that marks a regular expression."""

_DEEPEST: Final = 100
"""Maximum nesting of JSON, so that no later reader overflows the stack."""

_LONGEST_PATTERN: Final = 1000
"""Maximum characters of a pattern: the time to compile it grows with them."""

_SECONDS: Final = 1.0
"""Maximum CPU seconds of one search: honest patterns take microseconds."""

Pairs: TypeAlias = Callable[[list[tuple[str, Any]]], Any]


def inflate(data: bytes, most: int) -> bytes:
    """Return the content of the zlib stream `data`, at most `most` bytes.

    Raises:
        ValueError: it is not a zlib stream, is truncated, has bytes left over or is larger.
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"it does not inflate ({error})") from error
    if len(found) > most or not inflater.eof or inflater.unused_data:
        raise ValueError(f"it does not inflate to {most} bytes or fewer")
    return found


def read_json(
    text: str | bytes, *, object_pairs_hook: Pairs | None = None, finite: bool = True
) -> object:
    """Return the content of the JSON `text`, with finite numbers and limited nesting.

    Args:
        text: JSON; bytes are UTF-8.
        object_pairs_hook: As in `json.loads`.
        finite: False if the caller reports infinite numbers and NaN with their place.

    Raises:
        ValueError: it is not JSON, is nested more than 100 deep, or contains a number that is not
            finite.

    >>> read_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> read_json("1e999")
    Traceback (most recent call last):
    ValueError: the number 1e999 is not finite
    """
    try:
        found: object = json.loads(
            text,
            parse_constant=_finite if finite else float,
            parse_float=_finite if finite else float,
            object_pairs_hook=object_pairs_hook,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level = [found]
    for _ in range(_DEEPEST + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return found
    raise ValueError(f"it is nested more than {_DEEPEST} deep")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is not finite")
    return value


def is_found(pattern: str, text: str) -> bool:
    r"""Return whether the regular expression `pattern`, without its `{re}`, matches in `text`.

    The syntax is that of `re`; the match can be anywhere. Patterns come from configs and files, so
    a pattern that backtracks excessively is aborted.

    Raises:
        GraphError: the pattern does not compile, is longer than 1,000 characters, or takes more
            than a second.

    >>> is_found(r"{re}layer[12]\.", "layer2.0.conv1")
    True
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise GraphError(
            f"The pattern '{pattern[:40]}...' has {len(pattern):,} characters; at most "
            f"{_LONGEST_PATTERN:,} are read. Write several patterns."
        )
    try:
        compiled = regex.compile(pattern.replace(REGULAR, ""))
        return compiled.search(text, timeout=_SECONDS) is not None
    except (regex.error, RecursionError) as error:
        raise GraphError(
            f"'{pattern}' holds no regular expression: {error}. Escape brackets and dots with a "
            "backslash, as in '{re}Conv2d\\[conv1\\]'."
        ) from error
    except TimeoutError as error:
        raise GraphError(
            f"The pattern '{pattern}' takes more than {_SECONDS:g} s on '{text[:80]}': it "
            "backtracks without end. Repeat no group that itself repeats, as in '(a+)+'."
        ) from error
