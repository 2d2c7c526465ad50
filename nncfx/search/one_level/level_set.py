"""Stage 1: chooses the next level to measure when looking for the crossing of a threshold."""

import dataclasses
import functools
import math
from collections.abc import Sequence

from nncfx.search.model.gaussian_process import GaussianProcess
from nncfx.search.one_level.bracket import Bracket
from nncfx.search.resolution import Resolution, remaining_decades, stretch
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Observation

# The constants below were chosen with benchmarks/search_efficiency.py; a wide range around
# them works equally well.
_FIRST = 0.59  # the first evaluation, as a fraction of the cells: level 0.85 of (0, 1)
_SLACK = 1  # evaluations that can be risked beyond what bisection needs
_GAMMA = 0.95  # weight of nearness to the threshold in ILS-UCB, as published
_CLOSE = 0.1  # a metric this near to the threshold (relative to the slack at level 0) is close
_USUAL_SLACK = 0.02  # the usual relative accuracy budget, if the dense model is unknown
_FAR = 0.5  # a distance this large is not noise
_STEEP = 0.15  # a fall of the metric over one cell by this fraction of that slack is steep
_NEGLIGIBLE = 0.0025  # also close, relative to the observed range of the metric
_FINEST = 0.01  # cells below which a steep curve is not resolved further
_BELOW = 0.45  # cells by which a probe stays on the feasible side of the estimated crossing
_REACH = 0.5  # deviations by which a probe moves towards the farther end of the bracket
_LOPSIDED = 3  # ratio of the sides from which a probe moves upwards
_LINEAR = 4  # the drop, relative to the slack, at which the logarithm starts
_CUT = 4.0  # drops beyond exp(4) times the slack are clipped
_ALMOST_ONE = 1 - 1e-6  # cells
_GRID = 400
_DIGITS = 10  # rounding must not widen a bracket by more than Bracket tolerates


def next_level(
    observations: Sequence[Observation],
    threshold: float,
    settings: SearchSettings,
    *,
    free: int = 0,
) -> float | None:
    """Return the level at which to measure a decreasing metric next, or None when done.

    Three rules, from the safest to the boldest:

    * The monotone bracket limits where the crossing can be. A probe is admissible only if,
    whatever its outcome, bisection can still close the bracket to one cell, with one evaluation
    more in total than bisection alone needs.
    * While no level is known to be infeasible, halve the decades of what remains.
    * Otherwise maximise ILS-UCB, (1 - gamma) * deviation - gamma * |mean - threshold|, on a
    Gaussian process within the bracket; if the crossing is clear, probe where the likely outcome
    closes the bracket.
      outcome closes the bracket.

    The search is done when the bracket is one cell wide and the metric at its feasible end is
    close to the threshold; on a steep curve it continues within the same number of evaluations.

    Args:
        observations: all measurements so far; the first `free` cost nothing (the dense model).
        threshold: the smallest feasible metric.
        settings: tolerance, number of evaluations, upper end.
        free: how many of the first observations do not count as evaluations.

    Returns:
        A level in (0, upper), or 0.0 if only a measurement of the dense model can show whether any
        level is feasible; None when the search is over.

    Source: Joseph et al., "A Programmable Approach to Neural Network Compression", Section 3.3
        (ILS-UCB); the admissible interval follows the idea of the ITP root finder, Oliveira and
        Takahashi, ACM TOMS 47(1), 2020.
    """
    used = len(observations) - free
    if used >= settings.max_evaluations:
        return None
    view = View(observations=observations, threshold=threshold, settings=settings)
    if not view.feasible:
        if any(seen.level == 0 for seen in observations):
            return None
        if view.bracket.is_closed(view.scale) or used == settings.max_evaluations - 1:
            return 0.0
    whole = Bracket(low=0.0, high=settings.upper)
    spare = min(settings.max_evaluations, whole.halvings(view.scale) + _SLACK) - used
    if view.bracket.is_closed(view.scale):
        if spare <= 0 or not is_steep(view):
            return None
        position = _refinement(view)
    else:
        position = _admissible(_proposal(view), view, spare)
    return round(view.scale.level(position), _DIGITS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """The state of the search given by the observations; positions are in cells."""

    observations: Sequence[Observation]
    threshold: float
    settings: SearchSettings

    @property
    def scale(self) -> Resolution:
        """The scale on which one unit is the resolution of the search."""
        return self.settings.resolution

    @functools.cached_property
    def bracket(self) -> Bracket:
        """The interval that can contain the crossing."""
        return Bracket.of(self.observations, threshold=self.threshold, upper=self.settings.upper)

    @property
    def low(self) -> float:
        """The feasible end of the bracket."""
        return self.scale.cells(self.bracket.low)

    @property
    def high(self) -> float:
        """The infeasible or open end of the bracket."""
        return self.scale.cells(self.bracket.high)

    @property
    def middle(self) -> float:
        """The middle of the bracket."""
        return (self.low + self.high) / 2

    @property
    def measured(self) -> dict[float, float]:
        """The metric by level, where measured."""
        return {seen.level: seen.value for seen in self.observations if seen.value is not None}

    @property
    def feasible(self) -> dict[float, float]:
        """The metric by level, where it reaches the threshold."""
        return {level: y for level, y in self.measured.items() if y >= self.threshold}

    @property
    def believed(self) -> dict[float, float]:
        """The measured metrics, with a guess for the dense model if it is not measured.

        The guess only moves probes, never the bracket; a wrong guess costs evaluations.
        """
        best = max(self.feasible.values(), default=self.threshold)
        guess = max(best, self.threshold + _USUAL_SLACK * abs(self.threshold))
        return {0.0: guess, **self.measured}

    @property
    def is_open(self) -> bool:
        """Whether no level is known to be infeasible."""
        return len(self.feasible) == len(self.observations)

    @property
    def is_straddled(self) -> bool:
        """Whether some metric is below the threshold; failures do not show the crossing."""
        return min(self.believed.values()) < self.threshold

    @property
    def slack(self) -> float:
        """How much the best metric exceeds the threshold; 0 if none does."""
        return max(max(self.believed.values()) - self.threshold, 0.0)

    @property
    def above(self) -> float:
        """How much the metric at the feasible end of the bracket exceeds the threshold."""
        return self.feasible.get(self.bracket.low, math.inf) - self.threshold

    @functools.cached_property
    def crossing(self) -> tuple[float, float]:
        """The estimated crossing and its deviation, in cells; fitted once."""
        return _crossing_of(self)

    @property
    def close(self) -> float:
        """The distance that counts as equal to the threshold."""
        values = self.believed.values()
        return max(_CLOSE * self.slack, _NEGLIGIBLE * (max(values) - min(values)))


def _admissible(position: float, view: View, spare: int) -> float:
    """Move a probe to where bisection can still finish within `spare` evaluations."""
    reach = 2.0 ** max(spare - 1, 0)
    first, last = max(view.low, view.high - reach), min(view.high, view.low + reach)
    return min(max(position, first), last) if first <= last else view.middle


def _proposal(view: View) -> float:
    if view.is_open:
        return _outward(view)
    if not view.is_straddled:
        return view.middle
    crossing, deviation = view.crossing
    to_low, to_high = crossing - view.low, view.high - crossing
    if view.high - view.low <= 2:  # noqa: PLR2004 (any probe that leaves one cell on both sides)
        closes = to_low <= 1 and to_high <= 1
        return crossing if closes else view.middle
    if to_low <= _ALMOST_ONE:
        return view.low + _ALMOST_ONE
    if to_high <= _ALMOST_ONE:
        return view.high - _ALMOST_ONE
    return _beside(crossing, deviation, view)


def _beside(crossing: float, deviation: float, view: View) -> float:
    """Return a probe on the side of the crossing with the farther end of the bracket."""
    to_low, to_high = crossing - view.low, view.high - crossing
    if to_high > _LOPSIDED * to_low:
        return crossing + min(_REACH * deviation, to_high / 4)
    away = min(_REACH * deviation, to_low / 4) if to_low > 2 * to_high else 0.0
    return max(crossing - max(_BELOW, away), view.low + 0.5)


def _outward(view: View) -> float:
    """Return a probe above the highest feasible level, while no upper end is known."""
    if view.low == 0:
        return _FIRST * view.high
    decades = [remaining_decades(level) for level in (view.bracket.low, view.bracket.high)]
    level = (1 - 10 ** -(sum(decades) / 2)) / 0.999
    return min(view.scale.cells(level), view.high - 0.5)


def is_steep(view: View) -> bool:
    """Return whether a cell is too coarse to bring the metric close to the threshold."""
    if view.above <= view.close or view.high - view.low <= _FINEST:
        return False
    if view.above > _FAR * view.slack or not view.is_straddled:
        return True
    drops, unit = _drops(view)[0], _unit(view)
    process = GaussianProcess(
        [stretch(level) for level in view.believed], drops, seed=view.settings.seed
    )
    ends = [stretch(view.bracket.low), stretch(view.bracket.high)]
    low, high = (math.sinh(mean) * unit for mean in process.predict(ends)[0].tolist())
    return high - low > _STEEP * view.slack


def _refinement(view: View) -> float:
    """Return a probe inside a bracket of one cell, at the estimated crossing."""
    if not view.is_straddled:
        return view.middle
    margin = (view.high - view.low) / 10
    return min(max(view.crossing[0], view.low + margin), view.high - margin)


def _crossing_of(view: View) -> tuple[float, float]:
    """Return the maximiser of ILS-UCB in the bracket and the deviation there, both in cells."""
    drops, threshold = _drops(view)
    process = GaussianProcess(
        [stretch(level) for level in view.believed], drops, seed=view.settings.seed
    )
    width = view.high - view.low
    grid = [view.low + width * (i + 1) / (_GRID + 1) for i in range(_GRID)]
    mean, deviation = process.predict([stretch(view.scale.level(cells)) for cells in grid])
    nearness = (mean - threshold).abs()
    best = int(((1 - _GAMMA) * deviation - _GAMMA * nearness).argmax())
    before, after = max(best - 3, 0), min(best + 3, _GRID - 1)
    slope = float((mean[after] - mean[before]).abs()) / (grid[after] - grid[before])
    spread = float(deviation[best]) / max(slope, 1e-9)
    return grid[best], min(spread, width / 2)


def _drops(view: View) -> tuple[list[float], float]:
    """Return the drops of the metric below its best, and the drop at the threshold.

    The scale is linear near zero and logarithmic beyond, so that the knee of an accuracy curve is
    nearly straight on it, and clipped where it no longer informs about the crossing.
    """
    values = list(view.believed.values())
    best, unit = max(values), _unit(view)
    threshold = math.asinh(view.slack / unit)
    drops = [min(math.asinh((best - y) / unit), threshold + _CUT) for y in values]
    return drops, threshold


def _unit(view: View) -> float:
    """Return the drop of the metric at which the scale turns logarithmic; above 0."""
    values = view.believed.values()
    return max(view.slack / _LINEAR, (max(values) - min(values)) / 1000) or 1.0
