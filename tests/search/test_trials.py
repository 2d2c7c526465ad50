"""Measurements and trials as values."""

import json
import math

import pytest
import torch

from nncfx.errors import ArgumentError
from nncfx.search import Measurement, Trial


def test_a_scalar_tensor_becomes_a_number() -> None:
    measured = Measurement(metric=torch.tensor(0.5), objective=torch.tensor([2]))  # type: ignore[arg-type] # what users pass
    assert type(measured.metric) is float
    assert (measured.metric, measured.objective) == (0.5, 2.0)


def test_a_metric_that_is_no_number_is_refused() -> None:
    with pytest.raises(ArgumentError, match="The metric is None, which is not a number"):
        Measurement(metric=None, objective=1)  # type: ignore[arg-type] # the fault


def tried(**measured: float) -> Trial:
    done = {"number": 0, "stage": "accuracy", "level": 0.5, "state": "done", "error": None}
    measurement = Measurement(objective=1, **measured)
    return Trial(**done, measurement=measurement, seconds=0, started="")


def test_a_trial_is_feasible_from_the_threshold_on() -> None:
    trial = tried(metric=0.9)
    assert trial.is_feasible(0.9)
    assert not trial.is_feasible(0.91)


def test_a_trial_is_safely_feasible_that_many_standard_errors_above_the_threshold() -> None:
    trial = tried(metric=0.92, standard_error=0.01)
    assert trial.is_feasible(0.9, caution=1.9)
    assert not trial.is_feasible(0.9, caution=2.1)
    assert Trial.from_json(json.loads(json.dumps(trial.to_json()))) == trial


def test_a_trial_of_an_earlier_version_has_no_standard_error() -> None:
    record = {
        "number": 1,
        "stage": "accuracy",
        "level": 0.5,
        "state": "done",
        "metric": 0.9,
        "objective": 1.0,
        "details": {},
        "error": None,
        "seconds": 0.1,
        "started": "2026-01-01T00:00:00+00:00",
    }
    trial = Trial.from_json(dict(record))
    assert trial.measurement.standard_error is None
    assert trial.to_json() == record


@pytest.mark.parametrize("error", [-0.1, math.inf, math.nan])
def test_a_standard_error_that_is_none_is_refused(error: float) -> None:
    with pytest.raises(ArgumentError, match="standard_error is"):
        Measurement(metric=0.9, objective=1.0, standard_error=error)
