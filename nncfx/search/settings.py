"""The settings of a search."""

import dataclasses
import math

from nncfx.errors import ArgumentError
from nncfx.json_codec import encode
from nncfx.search.noise import CAUTION
from nncfx.search.resolution import Resolution
from nncfx.search.trials import JSONValue


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The resolution and the budget of a search; valid by construction.

    Attributes:
        tolerance: the resolution of levels, in (0, 0.25]; a fifth of it above level 0.9.
        max_evaluations: the most evaluations per stage, at least 1.
        upper: the open upper end of the levels to try, in (0, 1].
        seed: of the fits of the Gaussian process.
        caution: standard errors by which a metric must exceed its threshold, at least 0; without
            effect if no standard error is known.

    Raises:
        ArgumentError: a value is out of its range.
    """

    tolerance: float = 0.01
    max_evaluations: int = 10
    upper: float = 1.0
    seed: int = 0
    caution: float = CAUTION

    def __post_init__(self) -> None:
        if not 0 < self.tolerance <= 0.25:  # noqa: PLR2004 (the range in the docstring)
            raise ArgumentError(
                f"tolerance is {self.tolerance}; it is a step of the level and lies in (0, 0.25]. "
                "Write 0.01 to resolve the level to one point of a percentage."
            )
        given: object = self.max_evaluations
        if not isinstance(given, int) or given < 1:
            raise ArgumentError(
                f"max_evaluations is {given!r}; it is a whole number, at least 1, since a search "
                "without evaluations finds nothing. 10 is enough for one stage."
            )
        if not (math.isfinite(self.upper) and 0 < self.upper <= 1):
            raise ArgumentError(
                f"upper is {self.upper}; it bounds a level, which is a fraction in [0, 1), so it "
                "lies in (0, 1]. Write 0.9 for 90 %."
            )

        if not 0 <= self.caution < math.inf:
            raise ArgumentError(
                f"caution is {self.caution}; it is a number of standard errors, finite and at "
                "least 0. Leave it out for 2."
            )

    @property
    def resolution(self) -> Resolution:
        """The scale on which one unit is the resolution of the search."""
        return Resolution(tolerance=self.tolerance)

    def to_json(self) -> dict[str, JSONValue]:
        """Return the settings as a JSON object."""
        settings: dict[str, JSONValue] = encode(self)
        if self.caution == CAUTION:  # omitted, as in the journals of earlier versions
            del settings["caution"]
        return settings
