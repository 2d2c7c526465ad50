"""Tell from its code whether a call is a statement, whose result nothing reads."""

import dis
from bisect import bisect_right
from functools import lru_cache
from types import CodeType, FrameType
from typing import Final

import torch

from nncfx.tracing.calls.call_numbers import runs_between

_DISPATCH: Final = torch.overrides.__file__
"""The file of torch that calls functions of tensors of other classes."""


def is_dropped(frame: FrameType | None) -> bool:
    """Return whether the call that `frame` is in is a statement: its result goes nowhere.

    Functions and modules that return the result of the call hand it to their callers.
    """
    while frame is not None:
        code = frame.f_code
        if not runs_between(code) and code.co_filename != _DISPATCH:
            following = _following(code, frame.f_lasti)
            if following != "RETURN_VALUE":
                return following == "POP_TOP"
        frame = frame.f_back
    return False


def _following(code: CodeType, offset: int) -> str:
    """Return the name of the instruction after the one at `offset`."""
    offsets, names = _instructions(code)
    at = bisect_right(offsets, offset)
    return names[at] if at < len(names) else ""


@lru_cache(maxsize=1024)
def _instructions(code: CodeType) -> tuple[list[int], list[str]]:
    found = list(dis.get_instructions(code))
    return [one.offset for one in found], [one.opname for one in found]
