"""Baselines for `find_level`: bisection, and the literal published algorithm."""

import math
from collections.abc import Callable

import torch

from nncfx.search.model.gaussian_process import GaussianProcess, Hyperparameters
from nncfx.search.one_level.bracket import Bracket
from nncfx.search.one_level.results import LevelResult
from nncfx.search.settings import SearchSettings
from nncfx.search.trials import Observation

_PUBLISHED = Hyperparameters(lengthscale=1.0, noise=0.1)
_GAMMA = 0.95
_WARM_UP = 20_000


def bisect_level(
    evaluate: Callable[[float], float],
    threshold: float,
    *,
    tolerance: float = 0.01,
    max_evaluations: int = 10,
    upper: float = 1.0,
) -> LevelResult:
    """Find the highest feasible level by halving; see `find_level` for the arguments.

    Level 0 is assumed to be feasible. Needs at most 8 evaluations with the default settings.

    Raises:
        ArgumentError: a setting is out of its range.

    >>> found = bisect_level(lambda level: 1 - level, threshold=0.5)
    >>> (0.49 <= found.level <= 0.5, len(found.evaluations))
    (True, 8)
    """
    settings = SearchSettings(tolerance=tolerance, max_evaluations=max_evaluations, upper=upper)
    scale = settings.resolution
    seen: list[Observation] = []
    while True:
        bracket = Bracket.of(seen, threshold=threshold, upper=upper)
        if bracket.is_closed(scale) or len(seen) == max_evaluations:
            return _result(bracket, seen, threshold)
        _measure(evaluate, round(bracket.middle(scale), 10), seen)


def condensa_literal(
    evaluate: Callable[[float], float],
    threshold: float,
    *,
    tolerance: float = 0.005,
    max_evaluations: int = 25,
    seed: int = 0,
) -> LevelResult:
    """Run stage 1 as published, for comparison only: it often stops far from the crossing.

    Gaussian process with Matern-5/2, lengthscale 1, noise 0.1 and standardised targets; ILS-UCB is
    maximised over 20,000 random levels, denser than the tolerance by a factor of 100 (the original
    uses 100,000 and a local search). It stops when two consecutive proposals are within
    `tolerance`; the published condition, equality, never occurs on a continuum. The last level is
    returned, feasible or not.

    Raises:
        MissingExtraError: BoTorch is not installed.

    Source: Joseph et al., "A Programmable Approach to Neural Network Compression", Algorithm 1.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: list[Observation] = []
    while len(seen) < max_evaluations:
        levels = torch.rand(_WARM_UP, generator=generator, dtype=torch.float64, device="cpu")
        level = float(levels[0])
        known = [(o.level, o.value) for o in seen if o.value is not None]
        if known:
            process = GaussianProcess(
                [x for x, _ in known], [y for _, y in known], fixed=_PUBLISHED
            )
            mean, deviation = process.predict(levels.tolist())
            ils_ucb = (1 - _GAMMA) * deviation - _GAMMA * (mean - threshold).abs()
            level = float(levels[int(ils_ucb.argmax())])
        previous = seen[-1].level if seen else math.inf
        _measure(evaluate, level, seen)
        if abs(level - previous) <= tolerance:
            break
    last = seen[-1].level
    return _result(Bracket(low=last, high=last), seen, threshold)


def _measure(evaluate: Callable[[float], float], level: float, seen: list[Observation]) -> None:
    value = evaluate(level)
    seen.append(Observation(level=level, value=value if math.isfinite(value) else None))


def _result(bracket: Bracket, seen: list[Observation], threshold: float) -> LevelResult:
    return LevelResult(
        level=bracket.low,
        evaluations=tuple(seen),
        bracket=(bracket.low, bracket.high),
        threshold=threshold,
    )
