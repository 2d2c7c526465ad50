"""Operations on integer tensors: torch's own function, or a kernel registered here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.graph import Operation
from nncfx.hago.rules.fixed_point import wrapped
from nncfx.operators import KINDS, Rules, operation_kind
from nncfx.tracing.hooks.spelled_functions import is_known_function

_REGISTERS: Final[Mapping[int, torch.dtype]] = {
    8: torch.int8,
    16: torch.int16,
    32: torch.int32,
    64: torch.int64,
}


@dataclass(frozen=True)
class IntegerCall:
    """A call whose floating arguments were converted to integers.

    Attributes:
        operation: The operation.
        func: The function.
        args: Positional arguments, with tensors as int64.
        kwargs: Keyword arguments.
        scale: Of the first input.
    """

    operation: Operation
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    scale: Tensor


IntegerKernel: TypeAlias = Callable[[IntegerCall], Any]
"""Returns the result of the call in int64, at the scale that the operation's rule infers."""

integer_kernel: Final = Rules[IntegerKernel](
    lambda one: one.kind, KINDS, "a kind of operation", is_known_function
)
"""Decorates a kernel that computes calls in integers, for a kind of operation or a function."""


def integer_result(call: IntegerCall) -> Any:  # noqa: ANN401 (a tensor, or several)
    """Return the result of the call on integers, before it is wrapped to a register.

    Raises:
        CompressionError: torch does not compute the function in integers.
    """
    function = call.operation.function
    kernel = integer_kernel.find(function)
    try:
        return call.func(*call.args, **call.kwargs) if kernel is None else kernel(call)
    except (RuntimeError, TypeError) as error:
        raise CompressionError(
            f"'{call.operation.address}' cannot be computed in integers: {error}. Describe "
            f"'{operation_kind(function)}' in float, or register a kernel with "
            f"@hago.integer_kernel('{function}')."
        ) from error


def narrow(values: Tensor, bits: int) -> Tensor:
    """Return whole numbers in the narrowest dtype that holds `bits`, wrapped around."""
    register = next(one for one in _REGISTERS if one >= bits)
    if register != bits:
        values = wrapped(values, bits)
    return values.to(_REGISTERS[register])  # a cast between integers wraps around


@integer_kernel("clip")
def _clip(call: IntegerCall) -> Tensor:
    """Clip at bounds in steps, which are found by clipping values below and above everything."""
    ends = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64, device="cpu")
    low, high = (
        torch.round(end / call.scale).clamp(-(2.0**62), 2.0**62).to(torch.int64)
        for end in call.func(ends, *call.args[1:], **call.kwargs)
    )
    return torch.minimum(torch.maximum(call.args[0], low), high)


@integer_kernel("avg_pool")
def _sum(call: IntegerCall) -> Tensor:
    """Sum instead of averaging: the scale rule divides by the count."""
    values: Tensor = call.args[0]
    if call.operation.function == "mean":
        return torch.sum(values, *call.args[1:], **call.kwargs)
    result = call.operation.outputs[0].shape
    spatial = range(2, values.ndim)
    for axis in reversed(spatial):
        values = torch.unflatten(values, axis, (result[axis], -1)).sum(axis + 1)
    return values


@integer_kernel("dropout")
def _same(call: IntegerCall) -> Tensor:
    same: Tensor = call.args[0]
    return same
