"""Proposes points in a high-dimensional search by a Gaussian process in a box around the best."""

import dataclasses
from collections.abc import Sequence
from typing import Final

import torch

from nncfx.search.model.gaussian_process import calling_botorch, fit, require_botorch

_CANDIDATES: Final = 512
_CHANGED: Final = 20
"""The approximate number of coordinates of the best point that a candidate changes."""


@dataclasses.dataclass(frozen=True)
class TrustRegion:
    """The box around the best point: grown after successes, shrunk after failures.

    Attributes:
        length: Its side, in units of the whole range.
        successes: Points in a row that were better than the best before.
        failures: Points in a row that were not.
    """

    length: float = 0.8
    successes: int = 0
    failures: int = 0

    def after(self, *, improved: bool, patience: int) -> "TrustRegion":
        """Return the box after one more point; below a length of 2**-7 it restarts at 0.8.

        Source: Eriksson et al., Scalable Global Optimization via Local Bayesian Optimization,
        2019 (TuRBO-1): doubled after 3 successes, halved after `patience` failures.
        """
        successes = self.successes + 1 if improved else 0
        failures = 0 if improved else self.failures + 1
        if successes == 3:  # noqa: PLR2004 (the paper's)
            return TrustRegion(min(2 * self.length, 1.6))
        if failures == patience:
            return TrustRegion(self.length / 2 if self.length > 2**-6 else 0.8)
        return TrustRegion(self.length, successes, failures)


def next_in_trust_region(
    points: Sequence[Sequence[float]], values: Sequence[float], region: TrustRegion, seed: int
) -> list[float]:
    """Return the next point to try, by Thompson sampling in the box; higher values are better.

    Candidates change about twenty coordinates of the best point. The Gaussian process (Matern 5/2,
    with one fitted lengthscale) is BoTorch's.

    Args:
        points: n x d, in [0, 1]; at least one.
        values: n finite values.
        region: The box around the best point (among equals, the last).
        seed: Of candidates and sample.

    Raises:
        MissingExtraError: BoTorch is not installed.
    """
    require_botorch()
    with torch.device("cpu"):
        x = torch.tensor(points, dtype=torch.float64)
        y = torch.tensor(values, dtype=torch.float64)
        generator = torch.Generator().manual_seed(seed)
        best = x[len(y) - 1 - int(y.flip(0).argmax())]
        low = (best - region.length / 2).clamp(0, 1)
        high = (best + region.length / 2).clamp(0, 1)
        count, dims = _CANDIDATES, len(best)
        drawn = low + (high - low) * torch.rand(
            count, dims, generator=generator, dtype=torch.float64
        )
        changed = torch.rand(count, dims, generator=generator) < min(1.0, _CHANGED / dims)
        changed[torch.arange(count), torch.randint(dims, (count,), generator=generator)] = True
    candidates = torch.where(changed, drawn, best)
    chosen: list[float] = candidates[int(_sampled(x, y, candidates, seed).argmax())].tolist()
    return chosen


def _sampled(
    x: torch.Tensor, y: torch.Tensor, candidates: torch.Tensor, seed: int
) -> torch.Tensor:
    """Return one draw of the posterior at the candidates."""
    from botorch.models import SingleTaskGP
    from gpytorch.kernels import MaternKernel, ScaleKernel

    spread = float(y.std(correction=0)) or 1.0
    with torch.random.fork_rng(devices=[]), calling_botorch():
        torch.manual_seed(seed)
        model = SingleTaskGP(
            x,
            ((y - y.mean()) / spread)[:, None],
            covar_module=ScaleKernel(MaternKernel(nu=2.5)),
            outcome_transform=None,
        )
        fit(model)
        with torch.no_grad():
            draw: torch.Tensor = model.posterior(candidates).rsample().reshape(-1)
    return draw
