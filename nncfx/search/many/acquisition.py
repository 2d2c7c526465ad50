"""Chooses the next candidate to evaluate: BoTorch's noisy expected improvements under limits.

Shapes: n finished trials, d dimensions of the space, m outcomes, c points of a pool.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from nncfx.search.many.problem import Problem
from nncfx.search.many.space import Choice
from nncfx.search.model.gaussian_process import calling_botorch, fit, require_botorch

if TYPE_CHECKING:
    from botorch.models.model_list_gp_regression import ModelListGP

_POOL: Final = 256
_NEIGHBOURS: Final = 32
_BATCH: Final = 128
_SCALES: Final = (0.02, 0.08, 0.25)
_CLOSER: Final = (0.03, 0.01, 0.003)
_SAMPLES: Final = 64
_FAILED_RADIUS: Final = 0.05
_MOST_LISTED: Final = 2048
_ROUNDING: Final = 1e-9


def next_point(
    problem: Problem,
    points: Sequence[Sequence[float]],
    outcomes: Sequence[Sequence[float]],
    avoided: Sequence[Sequence[float]],
    seed: int,
    under_way: Sequence[Sequence[float]] = (),
) -> list[float] | None:
    """Return the point of the unit cube to evaluate next, or None if all were evaluated.

    Each outcome has its own Gaussian process. For one objective: `qLogNoisyExpectedImprovement`,
    weighted by the probability that the limits hold; for several:
    `qLogNoisyExpectedHypervolumeImprovement`, whose reference point lies a tenth of the observed
    range below the worst. The acquisition is maximised over a pool of points on the grid of the
    choices, then in shrinking neighbourhoods of its best along the ranges.

    Args:
        problem: objectives, limits and space.
        points: n x d, of finished trials; at least one.
        outcomes: n x m finite values, in the order of `problem.outcomes`.
        avoided: points of failed trials, whose neighbourhood is avoided.
        seed: of pool, samples and fits.
        under_way: points being evaluated; the improvement is conditioned on samples of their
            outcomes.

    Raises:
        MissingExtraError: BoTorch is not installed.

    Source: Ament et al. (2023), Unexpected Improvements to Expected Improvement.
    """
    require_botorch()
    x = torch.tensor(points, dtype=torch.float64, device="cpu")
    y = torch.tensor(outcomes, dtype=torch.float64, device="cpu")
    centre, spread = y.mean(0), y.std(0, correction=0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    with torch.random.fork_rng(devices=[]), calling_botorch(), warnings.catch_warnings():
        # no trial keeps the limits yet: the acquisition then follows their probability
        warnings.filterwarnings("ignore", "When all training points are infeasible")
        torch.manual_seed(seed)
        pool = _pool(problem, x, y, torch.tensor(avoided, dtype=torch.float64, device="cpu"), seed)
        pending = torch.tensor(under_way, dtype=torch.float64, device="cpu")
        if len(pending):
            pool = pool[torch.cdist(pool, pending).amin(1) > _ROUNDING]
        if not len(pool):
            return None
        acquisition = _acquisition(problem, x, (y - centre) / spread, (centre, spread), seed)
        if len(pending):
            acquisition.set_X_pending(pending)
        with torch.no_grad():
            parts = [pool[i : i + _BATCH] for i in range(0, len(pool), _BATCH)]
            values = torch.cat([acquisition(part[:, None]) for part in parts])
            chosen = _refined(problem, acquisition, pool[int(values.argmax())])
    point: list[float] = chosen.tolist()
    return point


def spread_points(problem: Problem, count: int, seed: int) -> list[list[float]]:
    """Return up to `count` different points of the space, spread by a scrambled Sobol sequence."""
    sobol: Any = torch.quasirandom.SobolEngine  # untyped in torch
    with torch.device("cpu"):
        drawn: Tensor = sobol(len(problem.space), scramble=True, seed=seed).draw(8 * count)
    snapped = _snapped(problem, drawn.double()).tolist()
    different = {tuple(point): point for point in snapped}
    return list(different.values())[:count]


def _pool(problem: Problem, x: Tensor, y: Tensor, avoided: Tensor, seed: int) -> Tensor:
    """Return `c x d` points: the whole space if it is small, else spread and near the best."""
    if problem.space.size <= _MOST_LISTED:
        pool = torch.tensor(problem.space.every_point(), dtype=torch.float64, device="cpu")
    else:
        spread = torch.tensor(
            spread_points(problem, _POOL, seed), dtype=torch.float64, device="cpu"
        )
        around = [
            centre
            + scale * torch.randn(_NEIGHBOURS, x.shape[1], dtype=torch.float64, device="cpu")
            for centre in x[_leading(problem, y)]
            for scale in _SCALES
        ]
        pool = torch.cat([spread, _snapped(problem, torch.cat(around).clamp(0, 1))])
    # a candidate is never evaluated twice
    keep = torch.cdist(pool, x).amin(1) > _ROUNDING
    if len(avoided):
        keep &= torch.cdist(pool, avoided, p=torch.inf).amin(1) > _FAILED_RADIUS
    return pool[keep]


def _leading(problem: Problem, y: Tensor) -> list[int]:
    """Return the numbers of up to four trials to search around: feasible ones of high gain."""
    rows = [dict(zip(problem.outcomes, row, strict=True)) for row in y.tolist()]
    ranked = sorted(
        range(len(rows)),
        key=lambda i: (not problem.is_feasible(rows[i]), -problem.gains(rows[i])[0]),
    )
    best_of_each = [
        min(
            range(len(rows)),
            key=lambda i: (not problem.is_feasible(rows[i]), -problem.gains(rows[i])[number]),
        )
        for number in range(len(problem.objectives))
    ]
    return list(dict.fromkeys([*best_of_each, *ranked]))[:4]


def _snapped(problem: Problem, points: Tensor) -> Tensor:
    """Return `points` on the grid of the choices."""
    columns = []
    for axis, dimension in enumerate(problem.space):
        column = points[:, axis]
        if isinstance(dimension, Choice):
            steps = len(dimension.values) - 1
            column = (column * steps).round() / steps
        columns.append(column)
    return torch.stack(columns, dim=1)


def _models(x: Tensor, y: Tensor) -> "ModelListGP":
    from botorch.models import SingleTaskGP
    from botorch.models.model_list_gp_regression import ModelListGP

    models = [SingleTaskGP(x, column[:, None], outcome_transform=None) for column in y.T]
    for model in models:
        fit(model)
    return ModelListGP(*models)


def _acquisition(
    problem: Problem, x: Tensor, y: Tensor, scale: tuple[Tensor, Tensor], seed: int
) -> Any:  # noqa: ANN401 (an acquisition function of BoTorch, which is untyped)
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
    from botorch.acquisition.multi_objective.objective import WeightedMCMultiOutputObjective
    from botorch.acquisition.objective import LinearMCObjective
    from botorch.sampling.normal import SobolQMCNormalSampler

    signs = [1.0 if d == "maximize" else -1.0 for d in problem.objectives.values()]
    shared: dict[str, Any] = {
        "model": _models(x, y),
        "X_baseline": x,
        "sampler": SobolQMCNormalSampler(torch.Size([_SAMPLES]), seed=seed),
        "constraints": _constraints(problem, *scale) or None,
        "prune_baseline": True,
    }
    if len(signs) == 1:
        weights = torch.zeros(y.shape[1], dtype=torch.float64, device="cpu")
        weights[0] = signs[0]
        return qLogNoisyExpectedImprovement(objective=LinearMCObjective(weights), **shared)
    gains = y[:, : len(signs)] * torch.tensor(signs, dtype=torch.float64, device="cpu")
    low, high = gains.amin(0), gains.amax(0)
    objective = WeightedMCMultiOutputObjective(
        torch.tensor(signs, dtype=torch.float64, device="cpu"), outcomes=list(range(len(signs)))
    )
    return qLogNoisyExpectedHypervolumeImprovement(
        ref_point=low - 0.1 * (high - low), objective=objective, **shared
    )


def _constraints(
    problem: Problem, centre: Tensor, spread: Tensor
) -> list[Callable[[Tensor], Tensor]]:
    """Return functions of `... x m` standardised outcomes, at most 0 where a limit is kept."""
    limits = [(name, limit, 1.0) for name, limit in problem.at_least.items()]
    limits += [(name, limit, -1.0) for name, limit in problem.at_most.items()]

    def constraint(name: str, limit: float, sign: float) -> Callable[[Tensor], Tensor]:
        column = problem.outcomes.index(name)
        bound = (limit - centre[column]) / spread[column]
        return lambda y: sign * (bound - y[..., column])

    return [constraint(*limit) for limit in limits]


def _refined(problem: Problem, acquisition: Callable[[Tensor], Tensor], best: Tensor) -> Tensor:
    """Return `best` moved along the ranges to a higher acquisition, if there is any.

    Samples ever closer points: the acquisition is cheap without a gradient, and rough with one.
    """
    free = torch.tensor([not isinstance(one, Choice) for one in problem.space], device="cpu")
    for scale in _CLOSER if bool(free.any()) else ():
        steps = scale * torch.randn(_NEIGHBOURS, len(best), dtype=torch.float64, device="cpu")
        near = torch.cat([best[None], torch.where(free, best + steps, best).clamp(0, 1)])
        best = near[int(acquisition(near[:, None]).argmax())]
    return best
