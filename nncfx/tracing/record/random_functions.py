"""Which functions of torch draw random numbers."""

from functools import cache

import torch
from torch.nn import functional as F

__all__ = ["is_random"]


@cache
def is_random(function: str) -> bool:
    """Return whether `function`, as addresses spell it, may draw random numbers.

    Torch tags its operators that do; a function written in Python does if it calls one.

    >>> [is_random(one) for one in ("dropout", "gumbel_softmax", "uniform_", "linear", "__add__")]
    [True, True, True, False, False]
    """
    code = getattr(getattr(F, function, None), "__code__", None)
    called = () if code is None else code.co_names
    return _is_tagged(function) or any(map(_is_tagged, called))


def _is_tagged(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    return isinstance(packet, torch._ops.OpOverloadPacket) and any(  # noqa: SLF001 (no public name)
        torch.Tag.nondeterministic_seeded in getattr(packet, one).tags
        for one in packet.overloads()  # type: ignore[no-untyped-call]  # torch leaves it so
    )
