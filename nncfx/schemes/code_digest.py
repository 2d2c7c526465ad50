"""Digests of user functions, to detect that they changed since an unfinished run began."""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

_DIGITS = 16
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def code_digest(*values: object) -> str:
    """Return a digest of the code of all functions in `values`; "" if there are none.

    Searches dataclasses, lists, tuples and partials for functions. Functions of nncfx are ignored,
    since its version is recorded elsewhere. Comments and line breaks do not count; argument
    defaults do. Functions and globals that a function uses are not followed, and another version
    of Python may compile the same text to different code.

    >>> code_digest(1, [None])
    ''
    """
    functions = [one for value in values for one in _functions(value)]
    texts = [_text(one.__code__) + _defaults(one) for one in functions]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:_DIGITS] if texts else ""


def _functions(value: object) -> Iterator[FunctionType]:
    if isinstance(value, FunctionType):
        if (value.__module__ or "").partition(".")[0] != "nncfx":
            yield value
        return
    for part in _parts(value):
        yield from _functions(part)


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, list | tuple):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return ()


def _text(code: CodeType) -> str:
    """Return the instructions of `code` with the names and constants that they use."""
    constants = [_constant(one) for one in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _defaults(function: FunctionType) -> str:
    """Return the argument defaults, without memory addresses; "" if there are none."""
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    return _ADDRESS.sub("", repr([_constant(one) for one in given])) if given else ""


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _text(value)
    if isinstance(value, frozenset):  # its order differs between processes
        return repr(sorted(map(repr, value)))
    return repr(value)
