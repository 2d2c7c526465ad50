"""The winner is judged on data that chose nothing, and gives way where it does not keep them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.compressor import CompressionResult, Compressor, Evidence
from nncfx.compressor.evaluation.judge import judge_against
from nncfx.compressor.evaluation.validation_data import divided
from nncfx.errors import SearchError
from nncfx.lc import DC
from nncfx.objectives import Minimize, footprint
from nncfx.report import render_report
from nncfx.report.claims import headline
from nncfx.schemes import Prune
from nncfx.search import Range, SearchSettings, Space, SpaceSettings

IMAGES = torch.randn(80, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(80)
BATCHES = list(zip(IMAGES.split(10), LABELS.split(10), strict=True))
JUDGING = {int(y[0]) for _, y in BATCHES[1::2]}


def zeros(model: nn.Module) -> float:
    weight = next(model.parameters())
    return float((weight == 0).float().mean())


class Metric:
    """Falls by the share of zeros, times a factor for the batches that judge and one for others.

    Attributes:
        read: the first labels of the batches of each call.
    """

    __name__ = "quality"

    def __init__(self, judging: float, choosing: float) -> None:
        self.judging, self.choosing = judging, choosing
        self.read: list[set[int]] = []

    def __call__(self, model: nn.Module, loader: Iterable[Any]) -> float:
        firsts = [int(y[0]) for _, y in loader]
        self.read.append(set(firsts))
        factors = [self.judging if first in JUDGING else self.choosing for first in firsts]
        return 1 - zeros(model) * sum(factors) / len(factors)


def compressor(metric: Metric, **more: Any) -> Compressor:  # noqa: ANN401 (any setting)
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "model": nn.Sequential(nn.Linear(8, 64, bias=False)),
        "objective": Minimize(footprint),
        "scheme": Prune(),
        "optimizer": DC(),
        "trainloader": BATCHES,
        "valloader": BATCHES,
        "criterion": F.cross_entropy,
        "metric": metric,
        "eps": 0.3,
        "runtime": "torch",
        "threads": 1,
        "settings": SearchSettings(max_evaluations=5, tolerance=0.05),
    }
    return Compressor(**settings | more)


@pytest.fixture(scope="module")
def kept() -> tuple[CompressionResult, Metric]:
    metric = Metric(judging=0.5, choosing=0.5)
    return compressor(metric).run(), metric


def test_no_trial_reads_the_batches_that_judge_the_winner(
    kept: tuple[CompressionResult, Metric],
) -> None:
    result, metric = kept
    judging = [bool(read & JUDGING) for read in metric.read]
    first = judging.index(True)
    # from the first look at them on, nothing is searched any more
    assert all(judging[first:])
    assert first > len(result.search.trials)
    assert not any(read & JUDGING and read - JUDGING for read in metric.read)


def test_a_metric_that_draws_numbers_measures_the_dense_model_once() -> None:
    """A second number, below the first, would end a search without a budget before it begins."""
    values = iter([1.0, 0.9])
    validation = divided(BATCHES, None, 0.5, 1)
    dense = nn.Linear(8, 64)
    judge = judge_against(dense, lambda *_: next(values), validation, 0.0)
    assert judge.metric_of(dense) == judge.reference
    assert judge.metric_of(nn.Linear(8, 64)) < judge.reference


def test_the_judgement_is_of_the_held_out_batches(kept: tuple[CompressionResult, Metric]) -> None:
    result, _ = kept
    judgement = result.evidence.judgement
    assert (judgement.held_out, judgement.examples, judgement.judged) == (True, 40, 1)
    assert judgement.loss == pytest.approx(0.5 * zeros(result.model))
    assert result.evidence.dense.accuracy - result.evidence.compressed.accuracy == pytest.approx(
        judgement.loss
    )
    assert "on 40 examples of valloader, held out, which chose nothing" in str(result)


def test_a_winner_outside_of_the_budget_gives_way_to_a_safer_one() -> None:
    """On the batches that judge, a zero costs six times what the search was told."""
    result = compressor(Metric(judging=0.6, choosing=0.1)).run()
    judgement = result.evidence.judgement
    assert judgement.judged > 1
    assert judgement.is_inside
    # these batches have chosen among the winners
    refused = judgement.judged - 1
    words = f"held out, which refused {refused} better trial{'s' if refused > 1 else ''}"
    assert words in str(result)
    assert words in render_report(result.evidence)
    assert 0.6 * zeros(result.model) <= 0.3
    above = [trial.level for trial in result.search.trials if trial.level > result.level]
    assert above
    assert any("lost more than the budget" in note for note in result.evidence.notes)


def test_where_nothing_keeps_the_budget_the_dense_model_stays_which_is_told_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = compressor(Metric(judging=60.0, choosing=0.1)).run()
    assert result.level == 0
    (note,) = (one for one in result.evidence.notes if "left the model as it was" in one)
    why = note.removeprefix("footprint: ")
    assert str(result).startswith(f"UNCHANGED: {why}")
    assert "Unchanged: no level" in render_report(result.evidence)
    warnings = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert f"Unchanged: {why}" in warnings


def test_a_space_without_any_safe_candidate_says_so_before_all_else() -> None:
    """There is no dense model in it to go back to."""
    result = compressor(
        Metric(judging=3.0, choosing=0.1),
        space=Space([Range("level", 0.2, 0.8)]),
        settings=SpaceSettings(max_evaluations=3, initial=3),
    ).run()
    assert str(result).startswith("OUTSIDE the budget: quality lost: ")
    assert result.candidate["level"] == min(
        trial.candidate["level"] for trial in result.search.trials
    )
    assert "Outside the budget" in render_report(result.evidence)


def test_a_space_gives_way_to_a_safer_candidate() -> None:
    result = compressor(
        Metric(judging=0.6, choosing=0.1),
        space=Space([Range("level", 0.1, 0.9)]),
        settings=SpaceSettings(max_evaluations=5, initial=5),
    ).run()
    assert result.evidence.judgement.judged > 1
    assert 0.6 * zeros(result.model) <= 0.3


def test_all_batches_choose_where_the_user_wants_it_and_this_is_said() -> None:
    result = compressor(Metric(judging=0.5, choosing=0.5), held_out=0.0).run()
    assert not result.evidence.judgement.held_out
    assert "which chose the model too: optimistic" in str(result)
    assert any("held_out is 0" in note for note in result.evidence.notes)


def test_the_journal_holds_the_division_and_another_one_is_refused(tmp_path: Path) -> None:
    compressor(Metric(judging=0.5, choosing=0.5), folder=tmp_path).run()
    header = (tmp_path / "journal.jsonl").read_text().splitlines()[0]
    assert '"held out": 0.5' in header
    with pytest.raises(SearchError, match="held out"):
        compressor(Metric(judging=0.5, choosing=0.5), folder=tmp_path, held_out=0.25).run()
    halved = [(x[i : i + 5], y[i : i + 5]) for x, y in BATCHES for i in (0, 5)]
    with pytest.raises(SearchError, match="content of what chooses"):
        compressor(Metric(judging=0.5, choosing=0.5), folder=tmp_path, valloader=halved).run()


def test_a_margin_of_ones_own_takes_the_place_of_standard_errors() -> None:
    result = compressor(Metric(judging=0.5, choosing=0.5), margin=0.1).run()
    errors = {t.measurement.standard_error for t in result.search.trials if t.measurement}
    assert errors == {None}
    assert result.search.threshold == pytest.approx(result.reference - 0.2)


def test_evidence_of_an_earlier_version_is_read(kept: tuple[CompressionResult, Metric]) -> None:
    body = json.loads(kept[0].evidence.to_json())
    for name in ("judgement", "batch", "threads"):
        del body[name]
    for facts in (body["dense"], body["compressed"]):
        del facts["packed_bytes"]
    for study in body["studies"]:
        del study["caution"]
        for sample in study["samples"] + study["comparison"]:
            del sample["standard_error"]
    old = Evidence.from_json(json.dumps(body))
    assert old.judgement is None
    assert old.dense.packed_bytes is None
    assert "threads as the runtime chose" in render_report(old)
    assert "batch" not in headline(old)[0].detail


def test_the_evidence_has_both_models_in_one_format(
    kept: tuple[CompressionResult, Metric], tmp_path: Path
) -> None:
    result, _ = kept
    saved = result.save(tmp_path / "small.nncfx")
    assert saved.evidence.compressed.packed_bytes == (tmp_path / "small.nncfx").stat().st_size
    # the dense model's float32 do not pack, but they are in the same container
    assert result.evidence.dense.packed_bytes < result.evidence.dense.file_bytes
    assert result.evidence.dense.packed_bytes > result.evidence.compressed.packed_bytes
    assert (result.evidence.batch, result.evidence.threads) == (10, 1)
