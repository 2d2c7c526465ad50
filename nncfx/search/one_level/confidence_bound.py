"""Stage 2: chooses the next level to measure when looking for the best objective."""

from collections.abc import Mapping, Sequence

from nncfx.search.model.gaussian_process import GaussianProcess
from nncfx.search.resolution import stretch
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Observation

_KAPPA = 0.95  # weight of the deviation, as published
_GRID = 400
_DIGITS = 6


def next_objective_level(
    observations: Sequence[Observation], upper: float, settings: SearchSettings, *, maximize: bool
) -> float | None:
    """Return the level in (0, upper] to measure next, or None when the search is over.

    Maximises GP-UCB, mean + kappa * deviation, or minimises GP-LCB, mean - kappa * deviation. The
    search is over when the best level is within one cell of a measured one, since there is nothing
    to learn there. Levels within one cell of a failed one are not proposed.

    Args:
        observations: all measurements so far, including those beyond `upper`.
        upper: highest admissible level, in [0, 1); nothing is proposed if it is 0.
        settings: tolerance and seed.
        maximize: whether a larger objective is better.

    Source: Joseph et al., "A Programmable Approach to Neural Network Compression", Section 3.3.
    """
    scale = settings.resolution
    known = _known(observations)
    failed = [scale.cells(seen.level) for seen in observations if seen.value is None]
    end = scale.cells(upper)
    grid = [
        cells
        for cells in (end * (i + 1) / _GRID for i in range(_GRID))
        if all(abs(cells - bad) > 1 for bad in failed)
    ]
    if upper <= 0 or not grid:
        return None
    if not known:
        return round(scale.level(grid[-1]), _DIGITS)
    mean, deviation = _process(known, settings).predict(
        [stretch(scale.level(cells)) for cells in grid]
    )
    hope = (mean if maximize else -mean) + _KAPPA * deviation
    best = grid[int(hope.argmax())]
    if any(abs(best - scale.cells(level)) <= 1 for level in known):
        return None
    return min(round(scale.level(best), _DIGITS), upper)


def next_objective_levels(
    observations: Sequence[Observation],
    upper: float,
    settings: SearchSettings,
    *,
    maximize: bool,
    pending: Sequence[float] = (),
    count: int = 1,
) -> list[float]:
    """Return up to `count` levels to measure at the same time, while `pending` ones are measured.

    Each pending level is treated as measured, with the mean of the Gaussian process as its value.
    An empty list means: wait if something is pending, otherwise the search is over.

    Source: Ginsbourger, Le Riche and Carraro (2010), Kriging Is Well-Suited to Parallelize
        Optimization, Section 3.3 (the kriging believer).
    """
    seen = list(observations)
    for level in pending:
        seen.append(_believed(seen, level, settings))
    found: list[float] = []
    while len(found) < count:
        following = next_objective_level(seen, upper, settings, maximize=maximize)
        if following is None:
            break
        found.append(following)
        if len(found) < count:
            seen.append(_believed(seen, following, settings))
    return found


def _believed(
    observations: Sequence[Observation], level: float, settings: SearchSettings
) -> Observation:
    known = _known(observations)
    value = _process(known, settings).predict([stretch(level)])[0] if known else 0.0
    return Observation(level=level, value=float(value))


def _known(observations: Sequence[Observation]) -> dict[float, float]:
    return {seen.level: seen.value for seen in observations if seen.value is not None}


def _process(known: Mapping[float, float], settings: SearchSettings) -> GaussianProcess:
    return GaussianProcess(list(map(stretch, known)), list(known.values()), seed=settings.seed)
