"""Search spaces of several dimensions: levels per group of layers, bits, block sizes."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from nncfx.errors import ArgumentError, require_known
from nncfx.json_codec import encode
from nncfx.search.trials import JSONValue

Candidate: TypeAlias = Mapping[str, float | int | str]
"""A value for each dimension of a space, by its name."""

_DIGITS = 6


@dataclasses.dataclass(frozen=True)
class Range:
    """A real dimension, such as the level of a group of layers.

    Attributes:
        name: its key in candidates.
        low: its lower end.
        high: its upper end, above `low`; both ends are included.

    Raises:
        ArgumentError: the ends are not finite, or not in this order.
    """

    name: str
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ArgumentError(
                f"'{self.name}' goes from {self.low} to {self.high}; a range needs finite ends, "
                "the lower first. Give one value only by leaving the dimension out."
            )

    def encode(self, value: object) -> float:
        """Return the position of `value` in [0, 1].

        Raises:
            ArgumentError: it is not a number of the range.
        """
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self.low <= float(str(value)) <= self.high:
            raise ArgumentError(
                f"'{self.name}' is {value!r}; it is a number from {self.low:g} to {self.high:g}."
            )
        return (float(str(value)) - self.low) / (self.high - self.low)

    def decode(self, position: float) -> float:
        """Return the value at `position` in [0, 1], rounded to six decimals of the range."""
        return self.low + round(position, _DIGITS) * (self.high - self.low)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A dimension of a few values, such as bits or block sizes.

    Attributes:
        name: its key in candidates.
        values: at least two, all different, ordered such that neighbours are similar.

    Raises:
        ArgumentError: there are fewer than two, or a value occurs twice.
    """

    name: str
    values: tuple[float | int | str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if len(self.values) < 2 or len(set(self.values)) != len(self.values):  # noqa: PLR2004 (one is no choice)
            raise ArgumentError(
                f"'{self.name}' has the values {self.values}; a choice needs at least two "
                "different ones. Leave the dimension out where there is nothing to choose."
            )

    def encode(self, value: object) -> float:
        """Return the position of `value` in [0, 1]: equal steps in the order of the values.

        Raises:
            ArgumentError: it is not one of the values.
        """
        if value not in self.values:
            known = ", ".join(map(str, self.values))
            raise ArgumentError(f"'{self.name}' is {value!r}; it is one of {known}.")
        return self.values.index(value) / (len(self.values) - 1)

    def decode(self, position: float) -> float | int | str:
        """Return the value nearest to `position` in [0, 1]."""
        return self.values[math.floor(position * (len(self.values) - 1) + 0.5)]


Dimension: TypeAlias = Range | Choice


@dataclasses.dataclass(frozen=True)
class Space:
    """The possible choices of a search, one dimension for each decision.

    Attributes:
        dimensions: at least one, with different names.

    Raises:
        ArgumentError: there are no dimensions, or two have the same name.

    >>> space = Space([Range("level", 0.0, 0.9), Choice("bits", (4, 8))])
    >>> space.decode([0.5, 0.8])
    {'level': 0.45, 'bits': 8}
    """

    dimensions: Sequence[Dimension]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimensions", tuple(self.dimensions))
        if not self.dimensions or len(set(self.names)) != len(self.names):
            raise ArgumentError(
                f"The space has the dimensions {list(self.names)}; it needs at least one, and "
                "no name twice."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the dimensions, in order."""
        return tuple(dimension.name for dimension in self.dimensions)

    def encode(self, candidate: Candidate) -> list[float]:
        """Return the point of `candidate` in the unit cube.

        Raises:
            ArgumentError: a dimension is missing or unknown, or a value is not in its dimension.
        """
        for name in candidate:
            require_known("dimension", name, self.names)
        for name in self.names:
            if name not in candidate:
                raise ArgumentError(
                    f"The candidate {dict(candidate)} says nothing of '{name}'. Give every "
                    "dimension a value."
                )
        return [dimension.encode(candidate[dimension.name]) for dimension in self.dimensions]

    def decode(self, point: Sequence[float]) -> dict[str, float | int | str]:
        """Return the candidate nearest to `point` of the unit cube."""
        pairs = zip(self.dimensions, point, strict=True)
        return {dimension.name: dimension.decode(position) for dimension, position in pairs}

    @property
    def size(self) -> float:
        """The number of candidates; infinite if a dimension is a range."""
        return math.prod(len(d.values) if isinstance(d, Choice) else math.inf for d in self)

    def every_point(self) -> list[list[float]]:
        """Return the points of all candidates of a finite space, the last dimension fastest."""
        axes = [[d.encode(v) for v in d.values] for d in self if isinstance(d, Choice)]
        return [list(point) for point in itertools.product(*axes)]

    def to_json(self) -> list[JSONValue]:
        """Return the space as JSON, for the header of a journal."""
        return list(encode(self.dimensions))

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dimensions)

    def __len__(self) -> int:
        return len(self.dimensions)
