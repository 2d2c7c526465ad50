"""Criteria: how the weights of one row, filter or block become one score.

Shapes: b blocks, m weights in a block.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, did_you_mean

__all__ = ["CRITERIA", "Criterion", "resolve_criterion"]

Criterion: TypeAlias = str | Callable[[Tensor], Tensor]
"""A name out of `CRITERIA`, or a function from `b x m` signed weights to `b` scores."""


def l1norm(blocks: Tensor) -> Tensor:
    """Return the sum of magnitudes of each of the `b x m` blocks."""
    return torch.sum(blocks.abs(), dim=1)


def l2norm(blocks: Tensor) -> Tensor:
    """Return the Euclidean norm of each of the `b x m` blocks."""
    norms: Tensor = torch.linalg.vector_norm(blocks, ord=2, dim=1)
    return norms


def scaled_l2norm(blocks: Tensor) -> Tensor:
    """Return the Euclidean norm divided by m, so that large blocks do not dominate.

    Source: the `lite` branch of Condensa.
    """
    return l2norm(blocks) / blocks.shape[1]


def largest(blocks: Tensor) -> Tensor:
    """Return the largest magnitude of each of the `b x m` blocks."""
    return torch.amax(blocks.abs(), dim=1)


def smallest(blocks: Tensor) -> Tensor:
    """Return the smallest magnitude of each of the `b x m` blocks."""
    return torch.amin(blocks.abs(), dim=1)


def mean(blocks: Tensor) -> Tensor:
    """Return the mean magnitude of each of the `b x m` blocks."""
    return torch.mean(blocks.abs(), dim=1)


CRITERIA: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "l1norm": l1norm,
        "l2norm": l2norm,
        "max": largest,
        "mean": mean,
        "min": smallest,
        "scaled_l2norm": scaled_l2norm,
        "sum": l1norm,
    },
)
"""The criteria known by name; all of them look at magnitudes. "sum" is "l1norm"."""


def resolve_criterion(criterion: Criterion) -> Callable[[Tensor], Tensor]:
    """Return the function that `criterion` names, or `criterion` itself if it is a function.

    Raises:
        ArgumentError: no criterion has that name.

    >>> resolve_criterion("max")(torch.tensor([[1.0, -3.0]]))
    tensor([3.])
    """
    if not isinstance(criterion, str):
        return criterion
    if criterion not in CRITERIA:
        raise ArgumentError(
            f"criterion {criterion!r} is not known; it says how the weights of a block become one "
            f"score. Use one of {', '.join(sorted(CRITERIA))}, or a function from b x m weights "
            f"to b scores.{did_you_mean(criterion, CRITERIA)}",
        )
    return CRITERIA[criterion]
