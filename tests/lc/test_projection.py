"""Projection leaves both models consistent, and the best is the earliest of equals."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from nncfx.errors import CompressionError
from nncfx.lc import RecoveryData, StepRecord
from nncfx.lc.projection import Best, Projection, judge, project
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


def normed() -> nn.Module:
    """Return a model with a batch norm that knows statistics, and one that never has any."""
    bare = nn.BatchNorm1d(1, track_running_stats=False)
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, momentum=0.3), bare)
    model[1].running_mean.fill_(0.25)
    model[1].running_var.fill_(0.5)
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].bias.zero_()
    return model


BATCHES = [(torch.tensor(x)[:, None], torch.zeros(len(x), 1)) for x in ([1.0, 3], [5.0, 7, 9])]


def judged(projection: Projection, batches: int) -> None:
    train = [*BATCHES, (torch.full((2, 1), float("nan")), torch.zeros(2, 1))]
    data = RecoveryData(train=train, validate=lambda _: 0.5, criterion=nn.MSELoss())
    judge(projection, data, batches)


def test_norms_get_the_plain_mean_of_the_statistics_of_as_many_batches_as_asked() -> None:
    """By hand: means 2 and 7, unbiased variances 2 and 4; the third batch is not read."""
    projection = project(normed(), Prune(), 0.0)
    judged(projection, 2)
    for model in (projection.model, projection.compressed):
        norm = model.get_submodule("1")
        assert norm.running_mean.tolist() == [4.5]
        assert norm.running_var.tolist() == [3.0]
        assert (norm.momentum, model.training, norm.training) == (0.3, False, False)


def test_norms_keep_their_statistics_if_nothing_is_asked() -> None:
    projection = project(normed(), Prune(), 0.0)
    judged(projection, 0)
    norm = projection.model.get_submodule("1")
    assert (norm.running_mean.tolist(), norm.running_var.tolist()) == ([0.25], [0.5])


def test_without_such_norms_no_batch_is_read() -> None:
    class Unread(list):
        def __iter__(self) -> Iterator[object]:
            raise AssertionError("a batch was read")

    projection = project(nn.Linear(1, 1), Prune(), 0.0)
    data = RecoveryData(train=Unread(), validate=lambda _: 0.5, criterion=nn.MSELoss())
    assert judge(projection, data, 2) == 0.5


def test_judging_is_told() -> None:
    told: list[str] = []
    data = RecoveryData(
        train=[], validate=lambda _: 0.5, criterion=nn.MSELoss(), progress=told.append
    )
    judge(project(nn.Linear(1, 1), Prune(), 0.0), data, 0)
    assert told == ["judging"]
