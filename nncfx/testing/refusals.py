"""Checks of errors, by class and message; and functions that damage states."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["changed", "check_refused", "paths"]


def check_refused(
    call: Callable[[], object], error: type[Exception] | tuple[type[Exception], ...], words: str
) -> None:
    """Raise `AssertionError` unless `call` raises `error` with the pattern `words` in it."""
    text = None
    try:
        call()
    except error as caught:
        text = str(caught)
    assert text is not None, f"no {error} was raised, which should have said '{words}'"
    assert re.search(words, text), f"the error does not say '{words}': {text}"


def paths(state: Any) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 (a tree of plain values)
    """Yield the keys that lead to each value of nested mappings.

    >>> list(paths({"a": 1, "b": {"c": 2}}))
    [('a',), ('b',), ('b', 'c')]
    """
    for key, value in state.items() if isinstance(state, Mapping) else ():
        yield from ((key, *path) for path in [(), *paths(value)])


def changed(state: Any, path: Sequence[str], value: object) -> Any:  # noqa: ANN401 (as above)
    """Return nested mappings with the value at a path replaced.

    >>> changed({"a": 1, "b": {"c": 2}}, ["b", "c"], 3)
    {'a': 1, 'b': {'c': 3}}
    """
    return {**state, path[0]: changed(state[path[0]], path[1:], value)} if path else value
