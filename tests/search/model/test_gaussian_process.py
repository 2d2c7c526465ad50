"""The Gaussian process against the formulas and another library."""

import sys

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from torch.overrides import _get_current_function_mode_stack

from nncfx.errors import MissingExtraError
from nncfx.search.model.gaussian_process import GaussianProcess, Hyperparameters, calling_botorch

INPUTS = [0.0, 0.4, 0.7, 1.5]
TARGETS = [3.0, 2.5, -1.0, 0.5]


def test_the_posterior_is_that_of_scikit_learn() -> None:
    fixed = Hyperparameters(lengthscale=0.5, noise=0.1)
    mean, deviation = GaussianProcess(INPUTS, TARGETS, fixed=fixed).predict([0.1, 1.0, 3.0])
    oracle = GaussianProcessRegressor(
        Matern(0.5, nu=2.5), alpha=0.1, optimizer=None, normalize_y=True
    ).fit(np.array(INPUTS)[:, None], np.array(TARGETS))
    expected, spread = oracle.predict(np.array([[0.1], [1.0], [3.0]]), return_std=True)
    # double precision; BoTorch may add a jitter of 1e-8 to the variance
    assert mean.numpy() == pytest.approx(expected, rel=1e-6)
    assert deviation.numpy() == pytest.approx(spread, rel=1e-6)


def test_a_fit_is_repeated_exactly_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = GaussianProcess(INPUTS, TARGETS).predict([0.2])
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert GaussianProcess(INPUTS, TARGETS).predict([0.2]) == first


def test_calls_of_torch_pass_no_device_context_where_the_cpu_is_the_default() -> None:
    with calling_botorch():
        assert _get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]
    with torch.device("meta"), calling_botorch():
        assert torch.zeros(1).device.type == "cpu"


@pytest.mark.parametrize("targets", [[2.0], [2.0, 2.0, 2.0]])
def test_a_constant_curve_stays_constant(targets: list[float]) -> None:
    mean, _ = GaussianProcess([0.1 * i for i in range(len(targets))], targets).predict([0.5])
    assert float(mean[0]) == pytest.approx(2.0)


def test_without_botorch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botorch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'nncfx\[search\]'"):
        GaussianProcess(INPUTS, TARGETS)
