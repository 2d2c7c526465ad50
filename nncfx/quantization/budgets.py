"""Budgets of searches: limits on the loss of the metric or on the size of the model."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from nncfx.errors import ArgumentError, machine_fault

Evaluate: TypeAlias = Callable[[nn.Module], float]
"""Returns the metric of a model, higher is better."""


@dataclass(frozen=True)
class Points:
    """A budget: the metric falls by at most `drop`, in the metric's own unit."""

    drop: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.drop):
            raise ArgumentError(f"Points({self.drop!r}): a drop is a finite number, such as 0.5.")


@dataclass(frozen=True)
class Bytes:
    """A budget: the model has at most `size_bytes` bytes."""

    size_bytes: int

    def __post_init__(self) -> None:
        if self.size_bytes < 1 or self.size_bytes != int(self.size_bytes):
            raise ArgumentError(f"Bytes({self.size_bytes!r}): a size is a whole number above 0.")


def metric_of(evaluate: Evaluate, model: nn.Module) -> float:
    """Return the result of `evaluate` as a float.

    Raises:
        ArgumentError: the result is not a number.
    """
    found: object = evaluate(model)
    try:
        return float(found)  # type: ignore[arg-type]  # what cannot is told
    except (TypeError, ValueError, RuntimeError) as error:
        if machine_fault(error) is not None:
            raise
        raise ArgumentError(
            f"evaluate returned a {type(found).__name__} that is not a number. Return the metric "
            "of the model it is given, higher is better, such as an accuracy in [0, 1]."
        ) from error


def check_budget(budget: object, evaluate: object, counted: str) -> None:
    """Check that `budget` is a budget, and that `Points` comes with a metric.

    Args:
        budget: What the user passed.
        evaluate: The metric, or None.
        counted: What `Bytes` counts, for the message.

    Raises:
        ArgumentError: either check fails.
    """
    if not isinstance(budget, Points | Bytes):
        raise ArgumentError(
            f"budget is {budget!r}; it says what must hold: Points(0.5) for a metric that is at "
            f"most 0.5 lower, or Bytes(200_000) for {counted} of at most that size."
        )
    if isinstance(budget, Points) and evaluate is None:
        raise ArgumentError(
            f"A budget of {budget} needs the metric: pass evaluate=lambda model: ..., higher is "
            "better."
        )
