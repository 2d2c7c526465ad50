"""The whole run on a small task."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.compressor import CompressionResult, Compressor, Evidence, accuracy
from nncfx.errors import ArgumentError, SearchError
from nncfx.lc import LC
from nncfx.objectives import Maximize, Minimize, macs
from nncfx.schemes import Cluster, Compose, FilterPrune, Prune, Quantize
from nncfx.search import SearchSettings

Batches = list[tuple[torch.Tensor, torch.Tensor]]
Make = Callable[..., Compressor]
FILTERS = Compose([FilterPrune(), Quantize("float16")])
WEIGHTS = Compose([Prune(), Cluster(bits=5), Quantize("float16")])
RECOVERY = LC(steps=5, lr=0.05, lr_end=0.005, mb_iterations_per_l=16, mu_init=0.1, mu_multiplier=2)
QUICK = SearchSettings(tolerance=0.05, max_evaluations=4)
EPS = 0.05


@pytest.fixture(scope="module")
def thinned(quick: Make) -> CompressionResult:
    """Fewer channels, for fewer multiply-accumulates."""
    changes = {"objective": Minimize(macs), "scheme": FILTERS, "optimizer": RECOVERY}
    return quick(**changes, settings=QUICK).run()


@pytest.fixture(scope="module")
def packed(
    quick: Make, thinned: CompressionResult, tmp_path_factory: pytest.TempPathFactory
) -> CompressionResult:
    """The thinned model, with fewer weights, in a file."""
    changes = {"scheme": WEIGHTS, "optimizer": RECOVERY, "settings": QUICK}
    result = quick(model=None, after=thinned, **changes).run()
    return result.save(tmp_path_factory.mktemp("packed") / "bars.nncfx")


def test_the_task_can_be_learnt_at_all(trained: nn.Module, task: dict[str, Batches]) -> None:
    assert accuracy(trained, task["valloader"]) > 0.9


def test_the_result_keeps_the_budget_on_the_data_that_it_was_searched_on(
    thinned: CompressionResult, trained: nn.Module, task: dict[str, Batches]
) -> None:
    dense = accuracy(trained, task["valloader"])
    assert accuracy(thinned.model, task["valloader"]) >= dense - EPS


def test_channels_are_really_gone_and_the_class_stays(
    thinned: CompressionResult, trained: nn.Module
) -> None:
    assert type(thinned.model) is type(trained)
    assert thinned.model.inner.out_channels < 16
    assert thinned.evidence.compressed.macs < 0.8 * thinned.evidence.dense.macs


def test_the_thinned_model_was_held_against_the_masked_one(thinned: CompressionResult) -> None:
    assert thinned.evidence.max_thinning_error <= 1e-5


def test_the_models_given_are_left_as_they_were(
    trained: nn.Module,
    task: dict[str, Batches],
    thinned: CompressionResult,
    packed: CompressionResult,
) -> None:
    before = copy.deepcopy(thinned.model.state_dict())
    assert trained.inner.out_channels == 16
    assert packed.model is not thinned.model
    assert all(torch.equal(v, before[k]) for k, v in thinned.model.state_dict().items())
    assert accuracy(trained, task["valloader"]) == thinned.reference


def test_the_evidence_goes_through_json(packed: CompressionResult) -> None:
    assert Evidence.from_json(packed.evidence.to_json()) == packed.evidence


def test_no_stage_evaluates_more_than_it_may(packed: CompressionResult) -> None:
    for study in packed.evidence.studies:
        for stage in ("accuracy", "objective"):
            assert sum(one.stage == stage for one in study.samples) <= QUICK.max_evaluations


def test_a_chain_keeps_both_studies_and_counts_from_the_first_model(
    thinned: CompressionResult, packed: CompressionResult
) -> None:
    first, second = packed.evidence.studies
    assert (first.objective_name, second.objective_name) == ("MACs", "footprint")
    assert first == thinned.evidence.studies[0]
    assert second.threshold == pytest.approx(thinned.reference - EPS)
    assert packed.evidence.dense.parameters == thinned.evidence.dense.parameters
    assert packed.evidence.title == thinned.evidence.title


def test_the_file_gives_the_accuracy_that_is_claimed(
    packed: CompressionResult, task: dict[str, Batches]
) -> None:
    assert packed.evidence.file_accuracy == packed.evidence.compressed.accuracy
    assert packed.evidence.compressed.accuracy == accuracy(packed.model, task["testloader"])


def test_the_file_is_as_large_as_is_claimed(packed: CompressionResult) -> None:
    path = Path(packed.evidence.files["compressed model"])
    assert path.stat().st_size == packed.evidence.compressed.file_bytes
    assert packed.evidence.dense.file_bytes > 4 * path.stat().st_size


def test_the_evidence_has_the_size_of_a_file_that_is_not_written_yet(
    thinned: CompressionResult, tmp_path: Path
) -> None:
    assert not thinned.evidence.files
    thinned.save(tmp_path / "thinned.nncfx")
    size = (tmp_path / "thinned.nncfx").stat().st_size
    assert thinned.evidence.compressed.file_bytes == size
    assert "file B" in str(thinned)


def test_the_footprint_is_counted_in_the_compressed_dtype(packed: CompressionResult) -> None:
    # Weights and biases of convolutions and linear layers in 2 bytes, those of the norm in 4.
    facts = packed.evidence.compressed
    assert 2 * facts.nonzero <= facts.footprint_bytes < 4 * facts.nonzero


def test_direct_compression_is_measured_beside_recovery(thinned: CompressionResult) -> None:
    (study,) = thinned.evidence.studies
    levels = {sample.level for sample in study.samples if sample.stage != "dense"}
    assert {sample.level for sample in study.comparison} == levels


def test_a_budget_that_nothing_keeps_leaves_the_model_and_says_so(quick: Make) -> None:
    torch.manual_seed(0)

    def ruin(model: nn.Module, level: float) -> None:
        del level
        for parameter in model.parameters():
            parameter.data.zero_()

    right = nn.Sequential(nn.Flatten(), nn.Linear(64, 2, bias=False))
    x = torch.randn(64, 64)
    with torch.no_grad():
        y = right(x).argmax(1)
    data = {"trainloader": [(x, y)], "valloader": [(x, y)], "testloader": None}
    result = quick(model=right, scheme=ruin, eps=0.1, **data).run()
    assert result.level == 0
    assert torch.equal(result.model[1].weight, right[1].weight)
    assert "left the model as it was" in result.evidence.notes[0]


def test_an_objective_of_the_user_is_maximised(quick: Make) -> None:
    def zeros(model: nn.Module) -> float:
        return float(sum((p == 0).sum() for p in model.parameters()))

    result = quick(objective=Maximize(zeros, unit="zeros")).run()
    assert zeros(result.model) > 0
    assert result.evidence.studies[0].objective_name == "zeros"


def test_a_compressor_does_not_begin_with_two_models(
    quick: Make, thinned: CompressionResult
) -> None:
    with pytest.raises(ArgumentError, match="it got both"):
        quick(after=thinned)


def test_the_evidence_says_that_latencies_are_cpu_time(
    quick: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nncfx.runtimes.timing.timing.held_up_share", lambda _: 0.4)
    result = quick(threads=1).run()
    assert result.evidence.notes[-1] == (
        "footprint: latencies are CPU time of one thread: other work held up 40% of the calls."
    )


def test_a_run_leaves_its_evidence_and_a_journal_that_is_refused_for_another_model(
    quick: Make, trained: nn.Module, tmp_path: Path
) -> None:
    def run(model: nn.Module) -> CompressionResult:
        return quick(model=model, eps=0.5, folder=tmp_path).run()

    assert run(trained).evidence == Evidence.read(tmp_path / "evidence.json")
    other = copy.deepcopy(trained)
    other.head.bias.data += 1e-6
    with pytest.raises(SearchError, match="'model'"):
        run(other)


def test_a_journal_is_refused_when_the_user_has_rewritten_the_scheme(
    quick: Make, tmp_path: Path
) -> None:
    """Of the same name, but its trials would not be those that the journal has."""

    def run(scheme: Callable[[nn.Module, float], None]) -> None:
        brief = SearchSettings(max_evaluations=1)
        changes = {"scheme": scheme, "eps": 0.5, "settings": brief, "folder": tmp_path}
        quick(**changes).run()

    def mine(model: nn.Module, level: float) -> None:
        model.head.weight.mul_(1 - level)

    first = mine
    run(first)
    run(first)

    def mine(model: nn.Module, level: float) -> None:  # type: ignore[no-redef]
        model.head.weight.mul_(1 - level / 2)

    with pytest.raises(SearchError, match="'code of functions'"):
        run(mine)
