"""An objective: a measurement with a name, a unit and a direction."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from nncfx.errors import ArgumentError, NNCFXError, error_text, machine_fault, require_truths
from nncfx.objectives.number import one_number
from nncfx.objectives.subject import Subject


@dataclass(frozen=True)
class Objective:
    """The quantity that a search improves.

    Attributes:
        name: its name in reports and journals, such as `"throughput"`.
        unit: the unit of the number, such as `"examples/s"`; may be empty.
        maximize: True if more is better.
        measure: maps the candidate to the number.

    Raises:
        ArgumentError: the name is empty, or `measure` cannot be called.
    """

    name: str
    unit: str
    maximize: bool
    measure: Callable[[Subject], float]

    def __post_init__(self) -> None:
        """Refuse an empty name or an uncallable measurement."""
        require_truths(self)
        if not self.name.strip():
            raise ArgumentError(
                "An objective has an empty name; reports and journals need one. Pass name='...'."
            )
        if not callable(self.measure):
            raise ArgumentError(
                f"'measure' of objective '{self.name}' is {self.measure!r}, which cannot be "
                "called; pass a function that takes the candidate and returns a number."
            )

    @property
    def direction(self) -> str:
        """`"maximize"` or `"minimize"`."""
        return "maximize" if self.maximize else "minimize"

    def evaluate(self, subject: Subject) -> float:
        """Return the measurement of `subject` as a finite float.

        Raises:
            ArgumentError: the measurement raised an error, or its result is not a number, or is
                NaN or infinite.
        """
        try:
            value = self.measure(subject)
        except NNCFXError:
            raise
        except Exception as error:
            if machine_fault(error) is not None:
                raise
            raise ArgumentError(
                f"Objective '{self.name}' cannot measure the model: {error_text(error)}"
            ) from error
        try:
            number = one_number(value)
        except ValueError as error:
            raise ArgumentError(
                f"Objective '{self.name}' measured {value!r}, a {type(value).__name__}; "
                "it must return one number."
            ) from error
        if not math.isfinite(number):
            raise ArgumentError(
                f"Objective '{self.name}' measured {number}; a search can only compare finite "
                "numbers. Fix the measurement, or raise an error for a candidate that has none."
            )
        return number

    def is_better(self, value: float, than: float) -> bool:
        """Return whether `value` is strictly better than `than`; False on a tie or a NaN."""
        return value > than if self.maximize else value < than

    def gain(self, before: float, after: float) -> float:
        """Return how many times better `after` is than `before`; above 1 is an improvement.

        `after / before` if more is better, `before / after` if less is. Measurements are assumed
        to be positive; 0 in the denominator gives infinity, 0 / 0 gives 1.

        >>> from nncfx.objectives import footprint, throughput
        >>> throughput.gain(before=100.0, after=150.0)
        1.5
        >>> footprint.gain(before=100.0, after=25.0)
        4.0
        """
        over, under = (after, before) if self.maximize else (before, after)
        if under == 0:
            return 1.0 if over == 0 else math.inf
        return over / under
