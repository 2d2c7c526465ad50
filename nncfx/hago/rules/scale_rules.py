"""The scales of an operation's output and inputs: two registries that users can extend."""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.graph import Operation
from nncfx.operators import KINDS, MOVEMENTS, Rules
from nncfx.tracing.hooks.spelled_functions import is_known_function

InferScale: TypeAlias = Callable[[Sequence[Tensor], Operation], Tensor]
"""Maps the scales of the inputs to the scale of the output. A scale is a float64 tensor: a scalar,
or one value per output channel, shaped to broadcast against the output."""

Rectify: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""Maps the scales of arriving inputs, and the scales that bits and thresholds ask for, to the
scales in which the operation reads them. An input whose arriving scale is returned unchanged is
not requantized."""

infer_scale: Final = Rules[InferScale](
    lambda one: one.kind, KINDS, "a kind of operation", is_known_function
)
"""Decorates a rule for the scale of an output, for a kind of operation or a function."""

rectify: Final = Rules[Rectify](
    lambda one: one.kind, KINDS, "a kind of operation", is_known_function
)
"""Decorates a rule for the scales of inputs, for a kind of operation or a function."""


def output_scale(operation: Operation, in_scales: Sequence[Tensor]) -> Tensor:
    """Return the scale of the integers that `operation` computes from integers of these scales.

    Raises:
        ArgumentError: there is no rule for it.
    """
    rule = infer_scale.find(operation.function)
    if rule is None:
        raise ArgumentError(
            f"Nothing says what the scale of '{operation.address}' is, so it cannot compute in "
            f'integers. Register a rule with @hago.infer_scale("{operation.function}"), or '
            "describe it in float."
        )
    return rule(in_scales, operation)


def rectified_scales(
    function: str, in_scales: Sequence[Tensor], out_scales: Sequence[Tensor]
) -> list[Tensor]:
    """Return the scales of an operation's inputs; without a rule, `out_scales`."""
    rule = rectify.find(function)
    return list(out_scales if rule is None else rule(in_scales, out_scales))


def keeps_scale(function: str) -> bool:
    """Return whether the function accepts its first input in any scale.

    >>> keeps_scale("relu"), keeps_scale("linear")
    (True, False)
    """
    arriving, wanted = torch.tensor(1.0, device="cpu"), torch.tensor(2.0, device="cpu")
    return rectified_scales(function, [arriving], [wanted])[0] is arriving


@infer_scale("conv", "linear", "matmul", "mul")
def _product(in_scales: Sequence[Tensor], operation: Operation) -> Tensor:
    del operation
    return in_scales[0] * in_scales[1]


@infer_scale("add", "sub", "concat", "relu", "clip", *MOVEMENTS)
def _of_first(in_scales: Sequence[Tensor], operation: Operation) -> Tensor:
    del operation
    return in_scales[0]


@infer_scale("avg_pool")
def _share(in_scales: Sequence[Tensor], operation: Operation) -> Tensor:
    """A sum of n integers is n times their average, without rounding."""
    given = operation.inputs[0]
    assert given is not None  # noqa: S101 (an average has an input)
    return in_scales[0] * operation.outputs[0].elements / given.elements


@rectify("add", "sub", "concat")
def _widest(in_scales: Sequence[Tensor], out_scales: Sequence[Tensor]) -> Sequence[Tensor]:
    """Use the coarsest scale for all: no operand is clipped below its own threshold."""
    del in_scales
    return [torch.stack(list(out_scales)).amax()] * len(out_scales)


@rectify("relu", "clip", *MOVEMENTS)
def _as_they_come(in_scales: Sequence[Tensor], out_scales: Sequence[Tensor]) -> Sequence[Tensor]:
    return [*in_scales[:1], *out_scales[1:]]
