"""Run the bodies of torch's composite Python functions so that modes see their calls.

A `TorchFunctionMode` is disabled while a function that it intercepted runs. For
`F.multi_head_attention_forward` that would hide the projections and the attention. Instead, a copy
of the function is run whose globals say that no argument overrides torch, so the function itself
is not reported. torch is not changed.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

from torch.nn import functional as F

COMPOSITE: Final = F.multi_head_attention_forward
"""The only function that is handled this way."""


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
"""`COMPOSITE`, to be called with the mode active."""
