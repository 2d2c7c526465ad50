"""Compile functions over plain integers and arrays with numba if it is installed."""

import functools
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

_LOGGER: Final = logging.getLogger(__name__)

IS_COMPILED = importlib.util.find_spec("numba") is not None
"""Whether numba is installed (the extra `nncfx[codec]`)."""

_KERNELS: Final = ("nncfx.storage.codecs.tensor_kernel", "nncfx.storage.codecs.size_kernel")
"""Modules of compiled loops that have a numpy equivalent; they are imported where used."""

_WORTH_COMPILING: Final = 1 << 20
"""The count of numbers from which compiling costs less time than it saves."""

_MANY: Final = 1 << 16
_PLAIN_SPEED: Final = 10_000
"""Numbers per second that plain Python codes by their contexts."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled(function: FunctionT) -> FunctionT:
    """Return `function`, compiled on its first call; unchanged without numba.

    The machine code is cached on disk, so only the first process compiles.
    """
    return _jit(function)


def fused(function: FunctionT) -> FunctionT:
    """Return `function` compiled with fused multiply-adds, where processors have them."""
    return _jit(function, fastmath={"contract"})


def lean(function: FunctionT) -> FunctionT:
    """Return `function`, which must not allocate, compiled without reference counting."""
    return _jit(function, _nrt=False)


def inlined(function: FunctionT) -> FunctionT:
    """Return a lean `function` that is inlined into each compiled caller."""
    return _jit(function, _nrt=False, forceinline=True)


def _jit(function: FunctionT, **options: bool | set[str]) -> FunctionT:
    if not IS_COMPILED:
        return function
    import numba

    jit = functools.partial(numba.njit, cache=True, nogil=True, **options)
    return cast("FunctionT", jit(function))


def pays_off(count: int) -> bool:
    """Return whether a loop of `count` iterations should use the compiled `_KERNELS`.

    Compiling them takes seconds, once per installation; numpy codes a small file in less time.
    """
    is_at_hand = count >= _WORTH_COMPILING or any(one in sys.modules for one in _KERNELS)
    return IS_COMPILED and (is_at_hand or _was_compiled())


def prepare(count: int) -> None:
    """Compile the loops if coding `count` numbers, of one or more tensors, is worth it."""
    if IS_COMPILED and count >= _WORTH_COMPILING:
        importlib.import_module(_KERNELS[0])


@functools.cache
def _was_compiled() -> bool:
    """Return whether an earlier process left machine code in numba's cache."""
    own = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(own) if own else Path(__file__).parent / "codecs" / "__pycache__"
    return next(folder.rglob("*_kernel.*.nbi"), None) is not None


def warn_slow(count: int) -> None:
    """Warn how long coding `count` numbers by their contexts takes if numba is missing."""
    if not IS_COMPILED and count >= _MANY:
        _LOGGER.warning(
            "%s numbers are coded by their contexts in plain Python, which takes some %.0f s. "
            "pip install 'nncfx[codec]' compiles that, a hundred times as fast; files written "
            "with mode='fast' do without.",
            f"{count:,}",
            count / _PLAIN_SPEED,
        )
