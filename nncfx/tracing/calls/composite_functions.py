"""Take torch's composite Python functions apart, so that a mode sees what they call.

A `TorchFunctionMode` is off while the function that it was told of runs. For
`F.multi_head_attention_forward` that would hide the projections and the attention. Its body is
run instead with the one check that reports it switched off: a copy of the function whose globals
say that no argument overrides torch. torch itself is not changed.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from torch.nn import functional as F

COMPOSITE: Final = F.multi_head_attention_forward
"""The one function that is taken apart."""


def _no_override(*_: Any) -> bool:
    return False


def _unreported(func: Callable[..., Any]) -> Callable[..., Any]:
    checks = dict.fromkeys(
        ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"),
        _no_override,
    )
    assert isinstance(func, FunctionType)  # noqa: S101 (it is written in Python)
    copy = FunctionType(
        func.__code__, {**func.__globals__, **checks}, func.__name__, func.__defaults__
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


composite_apart: Final = _unreported(COMPOSITE)
"""`COMPOSITE`, to be run with the mode on."""
