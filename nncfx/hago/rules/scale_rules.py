"""What the scales of an operation's output and inputs are: two registries, open to users."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.graph import Operation
from nncfx.operators import KINDS, operation_kind
from nncfx.tracing.hooks.activation_hooks import is_known_function

__all__ = [
    "InferScale",
    "Rectify",
    "has_scale_rule",
    "infer_scale",
    "keeps_scale",
    "output_scale",
    "rectified_scales",
    "rectify",
    "registration",
]

InferScale: TypeAlias = Callable[[Sequence[Tensor], Operation], Tensor]
"""From the scales at the inputs to the scale of the output. A scale is a float64 tensor: a scalar,
or one value per output channel, shaped to broadcast against the output."""

Rectify: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""From the scales in which the inputs arrive, and those that bits and thresholds ask for, to those
in which the operation gets them. An input whose arriving scale is returned as it is, is not
requantized."""

_Rule = TypeVar("_Rule")

_INFER: Final[dict[str, InferScale]] = {}
_RECTIFY: Final[dict[str, Rectify]] = {}


def infer_scale(work: str) -> Callable[[InferScale], InferScale]:
    """Register the decorated function for a kind of operation, or a function such as "conv2d".

    A rule for a function goes before that for its kind, and a later one before an earlier one.

    Raises:
        ArgumentError: `work` is neither a kind nor a function of torch.
    """
    return registration(_INFER, work)


def rectify(work: str) -> Callable[[Rectify], Rectify]:
    """Register the decorated function for a kind of operation, or a function such as "__iadd__".

    A rule for a function goes before that for its kind, and a later one before an earlier one.

    Raises:
        ArgumentError: `work` is neither a kind nor a function of torch.
    """
    return registration(_RECTIFY, work)


def has_scale_rule(function: str) -> bool:
    """Return whether the scale of the function's output can be inferred.

    >>> has_scale_rule("conv2d"), has_scale_rule("softmax")
    (True, False)
    """
    return _found(_INFER, function) is not None


def output_scale(operation: Operation, in_scales: Sequence[Tensor]) -> Tensor:
    """Return the scale of the integers that `operation` makes of integers of these scales.

    Raises:
        ArgumentError: there is no rule for it.
    """
    rule = _found(_INFER, operation.function)
    if rule is None:
        raise ArgumentError(
            f"Nothing says what the scale of '{operation.address}' is, so it cannot compute in "
            f'integers. Register a rule with @hago.infer_scale("{operation.function}"), or '
            "describe it in float.",
        )
    return rule(in_scales, operation)


def rectified_scales(
    function: str, in_scales: Sequence[Tensor], out_scales: Sequence[Tensor]
) -> list[Tensor]:
    """Return the scales in which an operation gets its inputs; `out_scales` without a rule."""
    rule = _found(_RECTIFY, function)
    return list(out_scales if rule is None else rule(in_scales, out_scales))


def keeps_scale(function: str) -> bool:
    """Return whether the function takes its first input in whatever scale it arrives.

    >>> keeps_scale("relu"), keeps_scale("conv2d")
    (True, False)
    """
    arriving, wanted = torch.tensor(1.0), torch.tensor(2.0)
    return rectified_scales(function, [arriving], [wanted])[0] is arriving


def registration(table: dict[str, _Rule], work: str) -> Callable[[_Rule], _Rule]:
    """Return what enters the decorated function into `table` for a kind or function `work`.

    Raises:
        ArgumentError: `work` is neither a kind nor a function of torch.
    """
    if work not in KINDS and not is_known_function(work):
        raise ArgumentError(
            f"'{work}' is neither a kind of operation nor a function of torch, as addresses "
            f"spell it, so a rule for it would never be used.{did_you_mean(work, KINDS)}",
        )

    def register(rule: _Rule) -> _Rule:
        table[work] = rule
        return rule

    return register


def _found(table: dict[str, _Rule], function: str) -> _Rule | None:
    return table.get(function) or table.get(operation_kind(function))


@infer_scale("conv")
@infer_scale("linear")
@infer_scale("matmul")
@infer_scale("mul")
def _product(in_scales: Sequence[Tensor], operation: Operation) -> Tensor:
    del operation
    return in_scales[0] * in_scales[1]


@infer_scale("add")
@infer_scale("sub")
@infer_scale("concat")
@infer_scale("relu")
@infer_scale("clip")
@infer_scale("pad")
@infer_scale("max_pool")
@infer_scale("slice")
@infer_scale("transpose")
@infer_scale("view")
@infer_scale("dropout")
def _of_first(in_scales: Sequence[Tensor], operation: Operation) -> Tensor:
    del operation
    return in_scales[0]


@infer_scale("avg_pool")
def _share(in_scales: Sequence[Tensor], operation: Operation) -> Tensor:
    """A sum of n integers is n times their average: nothing is rounded inside."""
    given = operation.inputs[0]
    assert given is not None  # noqa: S101 (an average is of something)
    return in_scales[0] * operation.outputs[0].elements / given.elements


@rectify("add")
@rectify("sub")
@rectify("concat")
def _widest(in_scales: Sequence[Tensor], out_scales: Sequence[Tensor]) -> Sequence[Tensor]:
    """One scale for all, the coarsest: no operand is clipped below its own threshold."""
    del in_scales
    return [torch.stack(list(out_scales)).amax()] * len(out_scales)


@rectify("relu")
@rectify("clip")
@rectify("max_pool")
@rectify("pad")
@rectify("slice")
@rectify("transpose")
@rectify("view")
@rectify("dropout")
def _as_they_come(in_scales: Sequence[Tensor], out_scales: Sequence[Tensor]) -> Sequence[Tensor]:
    return [*in_scales[:1], *out_scales[1:]]
