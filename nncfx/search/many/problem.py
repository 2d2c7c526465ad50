"""The problem of a search over several dimensions: objectives, limits, and the search budget."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from nncfx.errors import ArgumentError
from nncfx.json_codec import encode
from nncfx.search.many.space import Space
from nncfx.search.trials import JSONValue

Direction: TypeAlias = Literal["maximize", "minimize"]
Outcomes: TypeAlias = Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """Objectives and limits over the outcomes of an evaluation; valid by construction.

    Attributes:
        space: the possible choices.
        objectives: "maximize" or "minimize" by the name of the outcome. With one objective the
            best candidate is searched, with several the front of candidates that no other beats in
            all.
        at_least: outcomes with a lower limit, by name.
        at_most: outcomes with an upper limit, by name.

    Raises:
        ArgumentError: there is no objective, a direction is unknown, or a limit is not finite.
    """

    space: Space
    objectives: Mapping[str, Direction]
    at_least: Outcomes = dataclasses.field(default_factory=dict)
    at_most: Outcomes = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("objectives", "at_least", "at_most"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        wrong = {n: d for n, d in self.objectives.items() if d not in ("maximize", "minimize")}
        if wrong or not self.objectives:
            raise ArgumentError(
                f"The objectives are {dict(self.objectives)}; at least one outcome needs a "
                "direction, 'maximize' or 'minimize'. Write objectives={'latency': 'minimize'}."
            )
        for name, limit in (*self.at_least.items(), *self.at_most.items()):
            if not math.isfinite(limit):
                raise ArgumentError(
                    f"The limit of '{name}' is {limit}, with which nothing can be compared. Give "
                    "a finite number, or leave the limit out."
                )

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The outcomes that an evaluation must return: objectives first, then limited ones."""
        return tuple(dict.fromkeys((*self.objectives, *self.at_least, *self.at_most)))

    def is_feasible(self, outcomes: Outcomes) -> bool:
        """Return whether `outcomes` keep every limit."""
        return all(outcomes[name] >= limit for name, limit in self.at_least.items()) and all(
            outcomes[name] <= limit for name, limit in self.at_most.items()
        )

    def gains(self, outcomes: Outcomes) -> tuple[float, ...]:
        """Return the objectives such that more is better: minimised ones change their sign."""
        return tuple(
            outcomes[name] if direction == "maximize" else -outcomes[name]
            for name, direction in self.objectives.items()
        )

    def to_json(self) -> dict[str, JSONValue]:
        """Return the problem as JSON, for the header of a journal."""
        return dict(encode(self) | {"space": self.space.to_json()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpaceSettings:
    """The budget of a search over several dimensions.

    Attributes:
        max_evaluations: the most evaluations, at least 1.
        initial: how many of them are spread over the space before a model is used; None: twice the
            number of dimensions, plus two.
        seed: of points, samples and fits.

    Raises:
        ArgumentError: a value is out of its range.
    """

    max_evaluations: int = 30
    initial: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        given: dict[str, object] = {
            "max_evaluations": self.max_evaluations,
            "initial": 1 if self.initial is None else self.initial,
        }
        for name, value in given.items():
            if not isinstance(value, int) or value < 1:
                raise ArgumentError(
                    f"{name} is {value!r}; a search needs a whole number, at least 1."
                )

    def to_json(self) -> dict[str, JSONValue]:
        """Return the settings as a JSON object."""
        return dict(encode(self))


def non_dominated(points: Iterable[tuple[float, ...]]) -> list[bool]:
    """Return which points no other dominates: at least as high everywhere and higher somewhere.

    Equal points do not dominate each other.

    >>> non_dominated([(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (2.0, 1.0)])
    [True, True, False, True]
    """
    every = list(points)
    return [
        not any(
            other != point and all(b >= a for a, b in zip(point, other, strict=True))
            for other in every
        )
        for point in every
    ]
