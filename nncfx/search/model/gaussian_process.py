"""Gaussian-process regression of a curve with one input, by BoTorch."""

import contextlib
import dataclasses
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from nncfx.errors import needing

if TYPE_CHECKING:
    from botorch.models import SingleTaskGP

_LOGGER = logging.getLogger(__name__)

# Median and log-spread of the priors, for inputs of order 1 and standardised targets.
_LENGTHSCALE = (0.4, 0.8)
_VARIANCE = (1.0, 0.5)
_NOISE = (1e-3, 2.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Fixed hyperparameters, instead of fitted ones.

    Attributes:
        lengthscale: of the Matern kernel, in units of the input.
        noise: variance of the observations, in units of the variance of the targets.
    """

    lengthscale: float
    noise: float


class GaussianProcess:
    """A Matern-5/2 Gaussian process fitted to points of a curve.

    Targets are standardised internally; mean and deviation have their original unit. Without
    `fixed`, lengthscale, variance and noise maximise the posterior density under broad log-normal
    priors. Double precision; equal inputs give equal fits.

    Args:
        inputs: n positions of order 1; n is at least 1.
        targets: n finite values.
        fixed: hyperparameters to use instead of fitting.
        noise: standard deviation of the observations in the unit of the targets; None fits it.
        seed: of the fit.

    Raises:
        MissingExtraError: BoTorch is not installed.

    >>> process = GaussianProcess([0.0, 0.5, 1.0], [1.0, 2.0, 1.0])
    >>> mean, deviation = process.predict([0.5, 3.0])
    >>> bool(mean[0] > 1.8), bool(deviation[0] < deviation[1])
    (True, True)
    """

    def __init__(
        self,
        inputs: Sequence[float],
        targets: Sequence[float],
        *,
        fixed: Hyperparameters | None = None,
        noise: float | None = None,
        seed: int = 0,
    ) -> None:
        require_botorch()
        values = torch.tensor(targets, dtype=torch.float64, device="cpu")
        self._centre = float(values.mean())
        spread = float(values.std(unbiased=False))
        self._scale = spread if spread > 0 else 1.0
        points = torch.tensor(inputs, dtype=torch.float64, device="cpu")[:, None]
        standard = ((values - self._centre) / self._scale)[:, None]
        variance = None if noise is None else torch.full_like(standard, (noise / self._scale) ** 2)
        with torch.random.fork_rng(devices=[]), calling_botorch():
            torch.manual_seed(seed)
            self._model = _model(points, standard, variance)
            if fixed is None:
                fit(self._model)
            else:
                self._model.covar_module.base_kernel.lengthscale = fixed.lengthscale
                self._model.likelihood.noise = fixed.noise
            self._model.eval()

    def predict(self, inputs: Sequence[float]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return posterior mean and standard deviation of the curve, one value per input."""
        points = torch.tensor(inputs, dtype=torch.float64, device="cpu")[:, None, None]
        with torch.no_grad(), calling_botorch():
            posterior = self._model.posterior(points)
            mean = posterior.mean.reshape(-1) * self._scale + self._centre
            deviation = posterior.variance.clamp_min(0).sqrt().reshape(-1) * self._scale
        return mean, deviation


def require_botorch() -> None:
    """Import BoTorch.

    Raises:
        MissingExtraError: it is not installed.
    """
    with needing("botorch", "search", "the search of a level"):
        import botorch  # noqa: F401 (only to see whether it is installed)


def _model(
    points: torch.Tensor, targets: torch.Tensor, variance: torch.Tensor | None
) -> "SingleTaskGP":
    from botorch.models import SingleTaskGP
    from gpytorch.constraints import GreaterThan
    from gpytorch.kernels import MaternKernel, ScaleKernel
    from gpytorch.likelihoods import GaussianLikelihood

    kernel = ScaleKernel(
        MaternKernel(nu=2.5, lengthscale_prior=_log_normal(_LENGTHSCALE)),
        outputscale_prior=_log_normal(_VARIANCE),
    )
    kernel.base_kernel.lengthscale = _LENGTHSCALE[0]
    kernel.outputscale = _VARIANCE[0]
    likelihood = None
    if variance is None:
        # 1e-6 keeps the covariance of ten points positive definite in double precision
        likelihood = GaussianLikelihood(
            noise_prior=_log_normal(_NOISE), noise_constraint=GreaterThan(1e-6)
        )
        likelihood.noise = _NOISE[0]
    return SingleTaskGP(
        points,
        targets,
        train_Yvar=variance,
        likelihood=likelihood,
        covar_module=kernel,
        outcome_transform=None,
    ).double()


def _log_normal(median_and_spread: tuple[float, float]) -> Any:  # noqa: ANN401 (GPyTorch has no types)
    from gpytorch.priors import LogNormalPrior

    median, spread = median_and_spread
    return LogNormalPrior(math.log(median), spread)


def fit(model: "SingleTaskGP") -> None:
    """Fit the hyperparameters of `model`, and switch it to evaluation mode."""
    from botorch.exceptions.errors import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.mlls import ExactMarginalLogLikelihood

    try:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except ModelFittingError as error:
        # BoTorch restores the initial values: the medians of the priors, which suit any curve.
        _LOGGER.info("The fit did not converge; the medians of the priors are used: %s", error)
        model.eval()


@contextlib.contextmanager
def calling_botorch() -> Iterator[None]:
    """Make BoTorch create tensors on the CPU, without two warnings that are harmless here."""
    from botorch.exceptions.warnings import OptimizationWarning
    from botorch.settings import validate_input_scaling
    from linear_operator.utils.warnings import NumericalWarning

    # a device context intercepts each torch call, which takes about 15 % of the time of a fit
    is_default = torch.get_default_device().type == "cpu"
    place = contextlib.nullcontext() if is_default else torch.device("cpu")
    # Inputs can reach 2 and a constant curve has no variance: both are intended, so no check.
    with place, validate_input_scaling(False), warnings.catch_warnings():
        # a line search that stops early has still found usable hyperparameters
        warnings.simplefilter("ignore", OptimizationWarning)
        # two levels one thousandth apart need a jitter on the diagonal, 1e-8 of the variance
        warnings.simplefilter("ignore", NumericalWarning)
        yield
