"""Projection leaves both models consistent, and the best is the earliest of equals."""

import pytest
import torch
from torch import nn

from nncfx.errors import CompressionError
from nncfx.lc import RecoveryData, StepRecord
from nncfx.lc.projection import Best, judge, project
from nncfx.schemes import FunctionScheme, Prune, Quantize


def test_a_model_in_double_precision_stays_so() -> None:
    model = nn.Linear(2, 2).double()
    projection = project(model, Quantize("float16"), 0.0)
    assert projection.compressed.get_parameter("weight").dtype == torch.float16
    assert projection.model.get_parameter("weight").dtype == torch.float64
    projection.model(torch.ones(1, 2, dtype=torch.float64))


def test_a_function_that_cannot_be_undone_gives_a_model_that_runs() -> None:
    def halve(model: nn.Module, level: float) -> None:
        del level
        model.half()

    projection = project(nn.Linear(2, 2), FunctionScheme(halve), 0.0)
    assert projection.compressed.get_parameter("weight").dtype == torch.float16
    projection.model(torch.ones(1, 2))


def test_both_models_are_in_eval_mode_and_share_nothing() -> None:
    projection = project(nn.Linear(2, 2).train(), Prune(), 0.5)
    assert not projection.compressed.training
    assert not projection.model.training
    assert projection.model.get_parameter("weight") is not (
        projection.compressed.get_parameter("weight")
    )


def test_the_best_is_the_earliest_of_equals() -> None:
    best = Best()
    offers = [project(nn.Linear(2, 2), Prune(), 0.0) for _ in range(4)]
    for step, (metric, projection) in enumerate(zip([0.1, 0.5, 0.5, 0.3], offers, strict=True)):
        best.offer(projection, StepRecord(step=step, metric=metric))
    recovered = best.recovered()
    assert recovered.model is offers[1].model
    assert recovered.metric == 0.5
    assert [record.step for record in recovered.history] == [0, 1, 2, 3]


def test_the_metric_is_what_the_user_says_of_the_model_in_eval_mode() -> None:
    projection = project(nn.Linear(2, 2), Prune(), 0.0)
    data = RecoveryData(
        train=[], validate=lambda model: 0.5 + model.training, criterion=nn.MSELoss()
    )
    projection.model.train()
    assert judge(projection, data, 0) == 0.5


def test_a_metric_that_is_nan_is_refused() -> None:
    projection = project(nn.Linear(2, 2), Prune(), 0.0)
    data = RecoveryData(train=[], validate=lambda _: float("nan"), criterion=nn.MSELoss())
    with pytest.raises(CompressionError, match="validate returned NaN"):
        judge(projection, data, 0)
