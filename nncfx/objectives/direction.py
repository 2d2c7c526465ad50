"""`Maximize` and `Minimize`: objectives with a direction, as in Condensa's Listing 1."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from nncfx.errors import ArgumentError
from nncfx.objectives.objective import Objective
from nncfx.objectives.subject import Subject

Measurable: TypeAlias = Objective | Callable[[Any], float]
"""An objective, or a function of the model alone that returns a number."""


def Maximize(  # noqa: N802 (named as in Condensa's Listing 1)
    what: Measurable, *, name: str | None = None, unit: str | None = None
) -> Objective:
    """Return `what` as an objective to maximise.

    Args:
        what: one of the ready objectives, or your own function `(model) -> float`.
        name: its name in reports; the objective's or the function's own name by default.
        unit: the unit of the number; the objective's own, or none, by default.

    Raises:
        ArgumentError: `what` is neither an objective nor a function.

    Source: Condensa (Joseph et al., 2019), Listing 1.

    >>> Maximize(lambda model: 3.0, name="score").direction
    'maximize'
    """
    return _directed(what, maximize=True, name=name, unit=unit)


def Minimize(  # noqa: N802 (named as in Condensa's Listing 1)
    what: Measurable, *, name: str | None = None, unit: str | None = None
) -> Objective:
    """Return `what` as an objective to minimise; otherwise as `Maximize`.

    >>> from nncfx.objectives import footprint
    >>> Minimize(footprint).unit
    'bytes'
    """
    return _directed(what, maximize=False, name=name, unit=unit)


def _directed(
    what: Measurable, *, maximize: bool, name: str | None, unit: str | None
) -> Objective:
    if isinstance(what, Objective):
        return replace(
            what,
            maximize=maximize,
            name=what.name if name is None else name,
            unit=what.unit if unit is None else unit,
        )
    if not callable(what):
        raise ArgumentError(
            f"{what!r} is neither an objective nor a function; pass one of footprint, macs, "
            "parameters, throughput, latency, file_size, or a function (model) -> float."
        )
    return Objective(
        name=_function_name(what) if name is None else name,
        unit=unit or "",
        maximize=maximize,
        measure=partial(_of_model, what),
    )


def _of_model(function: Callable[[Any], float], subject: Subject) -> float:
    return function(subject.model)


def _function_name(function: Callable[..., object]) -> str:
    # A partial or a callable object has no __name__, so its class is used.
    name = getattr(function, "__name__", type(function).__name__)
    return "objective" if name == "<lambda>" else name
