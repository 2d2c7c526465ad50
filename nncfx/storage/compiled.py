"""Functions over plain integers and arrays, compiled by numba where it is installed."""

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
"""Modules of compiled loops for which numpy has something else; they are imported where used."""

_WORTH_COMPILING: Final = 1 << 20
"""Numbers of which compiling costs less than it saves."""

_MANY: Final = 1 << 16
_PLAIN_SPEED: Final = 10_000
"""Numbers that plain Python codes by their contexts in a second."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled(function: FunctionT) -> FunctionT:
    """Return `function`, compiled when it is first called; as it is without numba.

    The machine code is kept on disk, so that only the first process compiles.
    """
    return _jit(function)


def fused(function: FunctionT) -> FunctionT:
    """Return a compiled `function` whose multiply-adds round once where processors have them."""
    return _jit(function, fastmath={"contract"})


def lean(function: FunctionT) -> FunctionT:
    """Return `function`, which allocates nothing, compiled without counting references."""
    return _jit(function, _nrt=False)


def inlined(function: FunctionT) -> FunctionT:
    """Return a lean `function` that is compiled into each one that calls it."""
    return _jit(function, _nrt=False, forceinline=True)


def _jit(function: FunctionT, **options: bool | set[str]) -> FunctionT:
    if not IS_COMPILED:
        return function
    import numba

    jit = functools.partial(numba.njit, cache=True, nogil=True, **options)
    return cast("FunctionT", jit(function))


def pays_off(count: int) -> bool:
    """Return whether a loop of so many turns is best run compiled, by one of `_KERNELS`.

    Compiling them takes seconds, once for an installation; numpy codes a small file in less.
    """
    is_at_hand = count >= _WORTH_COMPILING or any(one in sys.modules for one in _KERNELS)
    return IS_COMPILED and (is_at_hand or _was_compiled())


def prepare(count: int) -> None:
    """Have loops compiled where coding `count` numbers, of one tensor or many, is worth that."""
    if IS_COMPILED and count >= _WORTH_COMPILING:
        importlib.import_module(_KERNELS[0])


@functools.cache
def _was_compiled() -> bool:
    """Return whether an earlier process has left machine code where numba keeps it."""
    own = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(own) if own else Path(__file__).parent / "codecs" / "__pycache__"
    return next(folder.rglob("*_kernel.*.nbi"), None) is not None


def warn_slow(count: int) -> None:
    """Log how long coding so many numbers by their contexts takes, where numba is missing."""
    if not IS_COMPILED and count >= _MANY:
        _LOGGER.warning(
            "%s numbers are coded by their contexts in plain Python, which takes some %.0f s. "
            "pip install 'nncfx[codec]' compiles that, a hundred times as fast; files written "
            "with mode='fast' do without.",
            f"{count:,}",
            count / _PLAIN_SPEED,
        )
