"""Look up operations by function name in addresses, or by name in the table."""

from collections.abc import Iterable
from typing import Final

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.operators.operator import OTHER, Operator
from nncfx.operators.table import ROWS

_BY_FUNCTION: Final[dict[str, Operator]] = {
    function: one for one in ROWS for function in one.functions
}
_UNKNOWN: Final = Operator(name=OTHER, functions=(), in_float="nothing is known of it")


def _kinds(work: str) -> frozenset[str]:
    return frozenset(one.kind for one in ROWS if one.work == work) - {OTHER}


KINDS: Final = frozenset(one.kind for one in ROWS) - {OTHER}
"""All kinds; any other function has the kind `"other"`."""

CONTRACTIONS: Final = _kinds("contraction")
"""The kinds that sum products, for which integer kernels exist."""

MOVEMENTS: Final = _kinds("movement")
"""The kinds whose output elements are elements of the input (in inference), so values on an
integer grid stay on it."""

NORMS: Final = _kinds("normalisation")
"""The kinds that normalize activations."""


def operator_of(function: str) -> Operator:
    """Return the row of a traced function, by its name in addresses.

    >>> operator_of("__rmatmul__").ports, operator_of("fft_fft").channels
    (('right', 'left'), 'fixes')
    """
    return _BY_FUNCTION.get(function, _UNKNOWN)


def operation_kind(function: str) -> str:
    """Return the kind of a traced function, by its name in addresses.

    >>> operation_kind("clamp_max"), operation_kind("__iadd__"), operation_kind("fft_fft")
    ('clip', 'add', 'other')
    """
    return operator_of(function).kind


def functions_of(*names: str) -> frozenset[str]:
    """Return the functions of the operations with these names.

    >>> sorted(functions_of("linear", "matmul"))
    ['__matmul__', 'linalg_matmul', 'linear', 'matmul', 'mm']
    """
    return frozenset(function for function, one in _BY_FUNCTION.items() if one.name in names)


LINEAR_LAYERS: Final = functions_of("__rmatmul__", "addmm", "linear", "matmul")
"""Functions that linear layers call, such as `addmm` in transformers' `Conv1D`."""


def register_operator(one: Operator) -> None:
    """Add an operation to the table; its functions are removed from other rows.

    Raises:
        ArgumentError: descriptions of targets do not have its kind.
    """
    if one.kind not in {*KINDS, OTHER}:
        raise ArgumentError(
            f"'{one.kind}', the kind of the operation '{one.name}', is not one that descriptions "
            f"of targets name.{did_you_mean(one.kind, KINDS)} Leave it as '{OTHER}', or use one "
            f"of {', '.join(sorted(KINDS))}."
        )
    _BY_FUNCTION.update(dict.fromkeys(one.functions, one))


def unknown_kinds(names: Iterable[str]) -> list[str]:
    """Return the `names` that are not kinds, in order."""
    return [name for name in names if name not in KINDS]
