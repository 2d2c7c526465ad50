"""Functions over plain integers and arrays, compiled by numba where it is installed."""

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["IS_COMPILED", "compiled", "pays_off"]

IS_COMPILED = importlib.util.find_spec("numba") is not None
"""Whether numba is installed (the extra `nncfx[codec]`)."""

_MANY = 1 << 16

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled(function: FunctionT) -> FunctionT:
    """Return `function`, compiled when it is first called; as it is without numba.

    The machine code is kept on disk, so that only the first process compiles.
    """
    if not IS_COMPILED:
        return function
    import numba

    jit = functools.partial(numba.njit, cache=True, nogil=True)
    return cast("FunctionT", jit(function))


def pays_off(count: int) -> bool:
    """Return whether a compiled loop of so many turns is worth the import of numba."""
    return IS_COMPILED and count >= _MANY
