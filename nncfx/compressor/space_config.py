"""Builds a space from schemes with levels and choices of their own."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, final

from nncfx.config import SearchedScheme
from nncfx.schemes import AtLevel, Compose, Scheme
from nncfx.schemes.from_config import scheme_from
from nncfx.search import Candidate, Choice, Dimension, Range, Space

_LEVEL: Final = "level"
_HIGHEST: Final = 0.999
_LEVELLESS: Final = frozenset({"Cluster", "Quantize"})


@final
@dataclasses.dataclass(frozen=True)
class SchemeOfCandidate:
    """Builds the scheme of a candidate of `space_of`.

    Attributes:
        schemes: The schemes of the config, in order.
    """

    schemes: tuple[SearchedScheme, ...]

    def __call__(self, candidate: Candidate) -> Scheme:
        """Return the composition of the schemes with the settings of `candidate`."""
        made: list[Scheme] = []
        for label, config in _labelled(self.schemes):
            chosen = {key: candidate[f"{label} {key}"] for key in config.choices or {}}
            scheme = scheme_from(config, **chosen)
            own = f"{label} {_LEVEL}"
            made.append(AtLevel(scheme, float(candidate[own])) if config.level else scheme)
        return Compose(made)


def space_of(schemes: Sequence[SearchedScheme], upper: float) -> Space:
    """Return the space of the levels and choices of `schemes`.

    Dimensions are called "Prune level", "Cluster bits"; those of a second scheme of the same name
    "Prune 2 level". Schemes that have a level but do not search their own share "level", from 0 to
    `upper`.

    Raises:
        ArgumentError: there is nothing to choose.
    """
    dimensions: list[Dimension] = []
    if any(not one.level and one.name not in _LEVELLESS for one in schemes):
        dimensions.append(Range(_LEVEL, 0.0, min(upper, _HIGHEST)))
    for label, config in _labelled(schemes):
        if config.level:
            dimensions.append(Range(f"{label} {_LEVEL}", *config.level))
        for key, values in (config.choices or {}).items():
            dimensions.append(Choice(f"{label} {key}", tuple(values)))
    return Space(dimensions)


def _labelled(schemes: Sequence[SearchedScheme]) -> Iterator[tuple[str, SearchedScheme]]:
    names = [one.name for one in schemes]
    for number, config in enumerate(schemes):
        earlier = names[:number].count(config.name)
        yield (f"{config.name} {earlier + 1}" if earlier else config.name), config
