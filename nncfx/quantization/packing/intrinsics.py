"""Intrinsics in LLVM for operations that numba does not offer.

numba recompiles callers only when the file of the caller changes, not when this one does.
"""

from typing import Any, Final, TypeAlias

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Native: TypeAlias = Any
"""Types of numba, code builders and their results."""

_elements: Final[Native] = cgutils.unpack_tuple


def _take_and_add(_: Native, counter: Native) -> Native:
    """Return the integer at a pointer and add 1 to it, atomically."""

    def build(context: Native, builder: Native, _: Native, arguments: Native) -> Native:
        one = context.get_constant(types.int64, 1)
        place = builder.bitcast(arguments[0], one.type.as_pointer())
        return builder.atomic_rmw("add", place, one, "monotonic")

    return types.int64(counter), build


def _call_with_addresses(_: Native, function: Native, addresses: Native) -> Native:
    """Call a C function without a result, by its pointer, with the addresses in a tuple."""

    def build(context: Native, builder: Native, _: Native, arguments: Native) -> Native:
        pointer = context.get_value_type(types.voidptr)
        passed = [builder.inttoptr(one, pointer) for one in _elements(builder, arguments[1])]
        kind = ir.FunctionType(ir.VoidType(), [pointer] * len(passed))
        builder.call(builder.bitcast(arguments[0], kind.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(function, addresses), build


take: Final[Native] = intrinsic(_take_and_add)
call: Final[Native] = intrinsic(_call_with_addresses)
