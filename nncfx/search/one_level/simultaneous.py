"""Stage 1 on several workers: chooses levels to measure at the same time."""

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from nncfx.search.one_level.level_set import View, is_steep, next_level
from nncfx.search.resolution import remaining_decades
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Observation

# The constants below were chosen on the curves of benchmarks/parallel_search.py virtual.
_HIGHEST: Final = 0.9  # upper end of the first cuts, as a fraction of the range; denser near it
_HALF_CELL: Final = 0.49
_SURE: Final = 2.5  # deviations within which the crossing is assumed to be
_NARROWEST: Final = 0.05  # cells on either side of an estimate, however precise
_ERROR: Final = 0.6  # the actual error of estimates, relative to their deviation
_CLOSING: Final = 0.04  # deviation, in cells, below which one cut at a bracket end suffices
_ALMOST_ONE: Final = 1 - 1e-6
_CERTAIN: Final = 0.15  # deviation, in cells, below which cuts need not leave room for bisection
_GENTLE: Final = 2.0  # the same if the metric at the infeasible end shows no cliff
_SLACK: Final = 2  # rounds that can be risked beyond what even cuts need
_EARLY: Final = 0.5  # fraction of the bracket that estimates from one batch may leave
_FINER: Final = 0.05  # fraction of the bracket at which a steep curve is cut next to the estimate
_EDGE: Final = 0.02  # cells between neighbouring cuts
_DIGITS: Final = 10


def next_levels(
    observations: Sequence[Observation],
    threshold: float,
    settings: SearchSettings,
    *,
    free: int,
    pending: Sequence[float] = (),
    count: int = 1,
) -> list[float]:
    """Return up to `count` levels at which to measure a decreasing metric while others run.

    With one level and nothing pending the result is that of `next_level`. Otherwise the bracket is
    cut in several places: at first where knees usually are, at quantiles of the estimated crossing
    if there is an estimate, at quantiles of the decades while no level is infeasible, and evenly
    if nothing else is known. Cuts that would leave more than bisection can close with the
    remaining evaluations are moved apart, and reduced in number if that does not help, unless the
    estimate of the crossing is so precise that cuts on both sides will close the bracket. An empty
    list means: wait if something is pending, otherwise the search is over.

    Args:
        observations: all measurements so far; the first `free` cost nothing (the dense model).
        threshold: the smallest feasible metric.
        settings: tolerance, number of evaluations, upper end.
        free: how many of the first observations do not count as evaluations.
        pending: the levels that are being measured.
        count: how many workers wait for a level, at least 1.
    """
    if count == 1 and not pending:
        level = next_level(observations, threshold, settings, free=free)
        return [] if level is None else [level]
    left = settings.max_evaluations - (len(observations) - free + len(pending))
    if left <= 0:
        return []
    view = View(observations=observations, threshold=threshold, settings=settings)
    if not view.feasible:
        if any(seen.level == 0 for seen in observations) or 0.0 in pending:
            return []
        if view.bracket.is_closed(view.scale) or left == 1:
            return [0.0]
    under_way = [view.scale.cells(p) for p in pending if view.bracket.low < p < view.bracket.high]
    used = len(observations) - free + len(pending) - len(under_way)
    cuts = _cuts(view, count + len(under_way), used)
    for position in under_way:
        if cuts:
            cuts.remove(min(cuts, key=lambda cut: abs(cut - position)))
    return [round(view.scale.level(cut), _DIGITS) for cut in cuts[: min(count, left)]]


def _cuts(view: View, count: int, used: int) -> list[float]:
    """Return up to `count` positions in the bracket, in cells, increasing.

    Args:
        view: the state of the search.
        count: workers that wait, or measure in the bracket.
        used: evaluations that are done, or measure outside of the bracket.
    """
    left = view.settings.max_evaluations - used
    width = view.high - view.low
    if view.bracket.is_closed(view.scale):
        spare = _rounds(view, count) * count - used
        return _refining(view, count) if spare > 0 and is_steep(view) else []
    if _is_sure(view) and min(count, left) > 1:
        return _proposed(view, min(count, left))
    # more cuts would leave less than a cell each, or more than the remaining bisections can close
    count = min(count, left, max(math.ceil(width - 1e-6) - 1, 1))
    while count > 1 and width / (count + 1) > 2.0 ** (left - count):
        count -= 1
    rounds = max(_rounds(view, count) - math.ceil(used / count), 1)
    cuts = _proposed(view, count)
    if len(cuts) < count and width / (len(cuts) + 1) > 2.0 ** (left - len(cuts)):
        cuts = _even(view, count)
    reach = min((count + 1.0) ** (rounds - 1), 2.0 ** (left - len(cuts)))
    if used <= count:
        reach = min(reach, _EARLY * width)
    return _admissible(cuts, view, max(reach, width / (len(cuts) + 1)))


def _is_sure(view: View) -> bool:
    """Return whether the crossing is known to part of a cell, or about one without a cliff."""
    if view.is_open or not view.is_straddled:
        return False
    below = view.threshold - view.measured.get(view.bracket.high, -math.inf)
    return view.crossing[1] < (_GENTLE if below < view.slack else _CERTAIN)


def _admissible(cuts: list[float], view: View, reach: float) -> list[float]:
    """Return `cuts`, moved if they leave a part wider than `reach` cells."""
    ends = [view.low, *cuts, view.high]
    for place in range(1, len(ends) - 1):
        ends[place] = min(ends[place], ends[place - 1] + reach)
    for place in range(len(ends) - 2, 0, -1):
        ends[place] = max(ends[place], ends[place + 1] - reach)
    return ends[1:-1]


def _rounds(view: View, count: int) -> int:
    """Return the number of rounds in which even cuts always close the range, with some slack."""
    whole = view.scale.cells(view.settings.upper)
    return math.ceil(math.log(max(whole, 1.0), count + 1) - 1e-6) + _SLACK


def _even(view: View, count: int) -> list[float]:
    width = view.high - view.low
    return [view.low + width * (i + 1) / (count + 1) for i in range(count)]


def _refining(view: View, count: int) -> list[float]:
    """Return cuts of a bracket of one cell, close around the estimated crossing."""
    if not view.is_straddled:
        return _even(view, count)
    step = (view.high - view.low) * _FINER
    centre = view.crossing[0]
    centre = min(max(centre, view.low + step), view.high - step)
    cuts = (centre + (i - (count - 1) / 2) * 2 * step for i in range(count))
    return sorted(cut for cut in cuts if view.low < cut < view.high)


def _proposed(view: View, count: int) -> list[float]:
    parts = [(i + 1) / (count + 1) for i in range(count)]
    if view.is_open and view.low == 0:
        return [_HIGHEST * (1 - (1 - part) ** 2) * view.high for part in parts]
    if view.is_open:
        low, high = (remaining_decades(end) for end in (view.bracket.low, view.bracket.high))
        levels = [(1 - 10 ** -(low + (high - low) * part)) / 0.999 for part in parts]
        return _apart([view.scale.cells(level) for level in levels], view)
    if not view.is_straddled or count == 1:
        return _even(view, count)
    crossing, deviation = view.crossing
    deviation *= _ERROR
    if _CLOSING < deviation < 1:
        if crossing - view.low <= _ALMOST_ONE:
            return [view.low + _ALMOST_ONE]
        if view.high - crossing <= _ALMOST_ONE:
            return [view.high - _ALMOST_ONE]
    # a more precise estimate is cut so closely that even a steep curve is finished
    half = min(_HALF_CELL, max(deviation * _SURE, _NARROWEST))
    middle, is_sure = (count - 1) / 2, _is_sure(view)
    cuts = []
    for number, part in enumerate(parts):
        quantile = 0.0 if is_sure else NormalDist().inv_cdf(part) * deviation
        least = (number - middle) * 2 * half
        cuts.append(crossing + (max(quantile, least) if least > 0 else min(quantile, least)))
    return _apart(cuts, view)


def _apart(cuts: list[float], view: View) -> list[float]:
    """Return `cuts` inside the bracket; cuts too near to another go to the widest part."""
    kept: list[float] = []
    for cut in cuts:
        inside = min(max(cut, view.low + _EDGE), view.high - _EDGE)
        if all(abs(inside - other) >= _EDGE for other in kept):
            kept.append(inside)
    while len(kept) < len(cuts):
        ends = sorted([view.low, *kept, view.high])
        low, high = max(itertools.pairwise(ends), key=lambda pair: pair[1] - pair[0])
        kept.append((low + high) / 2)
    return sorted(kept)
