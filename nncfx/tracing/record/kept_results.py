"""Find tensors made in functions whose results functools keeps, such as tables of positions."""

import functools
from types import CodeType, FrameType
from typing import Any, Final

from nncfx.tracing.calls.call_numbers import is_decorator

_KEEPER: Final = type(functools.cache(int))


class KeptResults:
    """Notes whether tensors are made in functions that `functools.cache` or `lru_cache` decorates.

    Later forwards take the results from the cache, and make these calls no more.

    Attributes:
        is_found: Whether such a tensor was seen.
    """

    def __init__(self) -> None:
        """Create a note of no such tensor."""
        self.is_found = False
        self._known: dict[CodeType, bool] = {}

    def see(self, frame: FrameType | None, outermost: FrameType | CodeType) -> None:
        """Look at the functions that run from `outermost` to `frame`, which creates a tensor."""
        while frame is not None and frame is not outermost and not self.is_found:
            code = frame.f_code
            if code not in self._known:
                self._known[code] = _is_kept(frame)
            self.is_found = self._known[code]
            frame = frame.f_back


def _is_kept(frame: FrameType) -> bool:
    """Return whether functools keeps the results of the function that runs in `frame`.

    What decorates it is a global, a method, or belongs to a further decorator that calls it.
    """
    code, caller = frame.f_code, frame.f_back
    places: list[Any] = [frame.f_globals.get(code.co_name)]
    if code.co_argcount:
        owner = type(frame.f_locals.get(code.co_varnames[0]))
        places.append(getattr(owner, code.co_name, None))
    if caller is not None and is_decorator(caller.f_code):
        places += [caller.f_locals.get(name) for name in caller.f_code.co_freevars]
    return any(
        isinstance(one, _KEEPER) and getattr(one.__wrapped__, "__code__", None) is code
        for one in places
    )
