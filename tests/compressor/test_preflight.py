"""Mistakes that a run tells before it begins."""

import dataclasses
import importlib.util
from collections import UserDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.compressor import Compressor, accuracy
from nncfx.compressor.preflight import check_training_step, first_batch, small_sample_note
from nncfx.errors import (
    ArgumentError,
    CompressionError,
    ExportError,
    MissingExtraError,
    SearchError,
)
from nncfx.lc import DC, LC
from nncfx.objectives import Minimize, footprint
from nncfx.schemes import AtLevel, Cluster, Compose, FilterPrune, Prune, Quantize, Scheme
from nncfx.search import SearchSettings
from small_models import Function

BATCH = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
BRIEF = SearchSettings(max_evaluations=1)


@pytest.fixture(autouse=True)
def brief_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time the chosen model for a moment only: nothing here is about time."""
    monkeypatch.setattr("nncfx.compressor.build_evidence._PROOF_SECONDS", 0.02)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def compressor(**changes: Any) -> Compressor:  # noqa: ANN401 (any setting)
    settings: dict[str, Any] = {
        "model": linear(),
        "objective": Minimize(footprint),
        "scheme": Prune(),
        "optimizer": LC(steps=2, mb_iterations_per_l=1),
        "trainloader": [BATCH],
        "valloader": [BATCH],
        "criterion": F.cross_entropy,
        "eps": 0.9,
        "runtime": "torch",
        "settings": BRIEF,
    }
    return Compressor(**{**settings, **changes})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "resnet"}, "model is a str"),
        ({"model": None}, "it got neither"),
        ({"model": nn.Flatten()}, "has no parameters"),
        ({"optimizer": LC}, r"the class LC.*Write LC\(\.\.\.\)"),
        ({"scheme": FilterPrune}, "the class FilterPrune"),
        ({"objective": len}, "Maximize|Minimize"),
        ({"criterion": 3}, "cannot be called"),
        ({"metric": None}, "cannot be called"),
        ({"runtime": "onxruntime"}, "Did you mean 'onnxruntime'"),
        ({"eps": "0.1"}, "eps is '0.1', a str; it must be a number"),
        ({"margin": "0.1"}, "margin is '0.1', a str"),
        ({"held_out": np.float32(0.5)}, "a float32; it must be a number: an int or a float"),
        ({"eps": 2}, "Write 0.02 for two points"),
        ({"eps": float("nan")}, "at least 0"),
        ({"eps": -0.1}, r"eps is -0\.1"),
        ({"threads": 0}, "threads is 0; a timed call needs at least 1"),
        ({"trainloader": (b for b in [BATCH])}, "trainloader is a generator, which is used up"),
        ({"valloader": iter([BATCH])}, "valloader is a list_iterator"),
        ({"testloader": (b for b in [BATCH])}, "testloader is a generator"),
        ({"trainloader": 7}, "must be a list or a DataLoader"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_when_the_compressor_is_made(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        compressor(**change)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = linear()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.body(x * mask)


def test_inputs_in_a_mapping_that_is_no_dict_are_compressed() -> None:
    """Tokenizers of transformers give such."""
    batch = UserDict(x=BATCH[0], mask=torch.ones_like(BATCH[0])), BATCH[1]
    result = compressor(model=Masked(), trainloader=[batch], valloader=[batch] * 2).run()
    assert result.evidence.compressed.macs <= result.evidence.dense.macs


class Extra(nn.Linear):
    def __init__(self, extra: object) -> None:
        super().__init__(8, 2)
        self.extra = extra

    def get_extra_state(self) -> object:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


def test_state_that_no_file_holds_is_refused() -> None:
    """It ended as an AttributeError, in the fingerprint of the model."""
    with pytest.raises(ArgumentError, match="'_extra_state' in the state_dict of model is a dict"):
        compressor(model=Extra({"calls": 3}))
    compressor(model=Extra(torch.ones(3)))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_model_is_refused() -> None:
    with pytest.raises(ArgumentError, match="Pass the module that was scripted"):
        compressor(model=torch.jit.script(linear()))


# torch.compile imports what torch has deprecated itself
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_model_is_refused() -> None:
    with pytest.raises(ArgumentError, match="Pass the module that was compiled"):
        compressor(model=torch.compile(linear()))


def nothing_searched(_: nn.Module) -> float:
    raise AssertionError("the search had begun")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainloader": []}, "trainloader gives no batch"),
        ({"testloader": []}, "testloader gives no batch"),
        ({"valloader": [(*BATCH, 1)]}, "valloader is a tuple of 3; a batch is a pair"),
        ({"valloader": [{"x": BATCH[0]}]}, "is a dict with the keys 'x'"),
        ({"valloader": [(BATCH[0].numpy(), 1)]}, "without any tensor"),
        ({"trainloader": [(torch.ones(4, 9), BATCH[1])]}, r"trainloader \(4 x 9 float32\)"),
        ({"criterion": F.mse_loss}, "criterion does not take the outputs|criterion returned"),
        ({"criterion": lambda o, _: o}, "criterion returned a tensor of 4 x 2"),
        ({"criterion": lambda *_: 1.0}, "criterion returned 1.0"),
        ({"criterion": lambda o, _: o.sum() * float("nan")}, "trainloader is nan"),
        ({"criterion": lambda o, _: o.sum() * float("inf")}, "trainloader is -?inf"),
        ({"criterion": lambda o, _: o.detach().sum()}, "depends on no parameter"),
        ({"model": linear().requires_grad_(requires_grad=False)}, "or take DC"),
        ({"metric": lambda *_: float("nan")}, "of the dense model is nan"),
    ],
)
def test_data_that_do_not_go_together_are_told_before_the_search(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        compressor(objective=Minimize(nothing_searched), **change).run()


def test_an_error_of_the_users_objective_is_told_with_its_name() -> None:
    def shadow(model: nn.Module) -> float:
        raise KeyError(model)

    with pytest.raises(ArgumentError, match="'shadow' cannot measure the model: KeyError"):
        compressor(objective=Minimize(shadow)).run()


def test_a_run_of_which_every_trial_failed_is_no_result() -> None:
    with pytest.raises(SearchError, match=r"first 1 trials all failed.*FilterPrune finds no"):
        compressor(scheme=FilterPrune()).run()


def test_direct_compression_needs_no_gradient_and_no_training_data() -> None:
    frozen = linear().requires_grad_(requires_grad=False)
    assert compressor(model=frozen, optimizer=DC(), trainloader=[], margin=0.0).run().level > 0


def test_a_run_inside_inference_mode_still_trains() -> None:
    with torch.inference_mode():
        # four examples are too few for a margin that follows from them
        assert compressor(margin=0.0).run().level > 0


def test_the_training_step_that_is_tried_leaves_model_and_random_numbers_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    check_training_step(model, [BATCH], F.cross_entropy)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in model.parameters())


def test_the_first_batch_of_a_shuffling_loader_costs_no_random_number() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    random = torch.get_rng_state()
    inputs, targets = first_batch("trainloader", loader)
    assert torch.equal(inputs, targets.float())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    ("eps", "metric", "batches", "warns"),
    [
        (0.02, accuracy, 1, True),
        (0.02, accuracy, 13, False),  # 52 examples: 1.9 points each
        (0.0, accuracy, 1, False),
        (0.02, lambda *_: 1.0, 1, False),
    ],
)
def test_too_few_examples_for_the_budget_are_told(
    eps: float, metric: Callable[[nn.Module, Iterable[Any]], float], batches: int, *, warns: bool
) -> None:
    note = small_sample_note(eps, metric, [BATCH] * batches, BATCH[0])
    assert bool(note) is warns


def test_a_small_validation_set_is_told_in_the_evidence() -> None:
    result = compressor(eps=0.1).run()
    assert any("at most 4 examples" in note for note in result.evidence.notes)


class Tied(nn.Module):
    """An embedding that is the output layer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.inner = nn.Linear(8, 8)
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(F.relu(self.inner(self.embedding(tokens)))).mean(1)


def test_tied_weights_stay_tied_through_a_run_in_half_precision() -> None:
    tokens = torch.randint(0, 20, (8, 5))
    scheme = Compose([Prune(), Quantize("float16")])
    data = [(tokens, tokens[:, 0])]
    result = compressor(model=Tied(), scheme=scheme, trainloader=data, valloader=data).run()
    assert result.model.out.weight is result.model.embedding.weight
    assert result.model.out.weight.dtype == torch.float32


def test_a_double_model_comes_back_in_double() -> None:
    data = [(BATCH[0].double(), BATCH[1])]
    scheme = Compose([Prune(), Quantize("float16")])
    result = compressor(
        model=linear().double(), scheme=scheme, trainloader=data, valloader=data
    ).run()
    assert {p.dtype for p in result.model.parameters()} == {torch.float64}


def test_a_journal_of_another_metric_is_not_gone_on_with(tmp_path: Path) -> None:
    def other(*_: object) -> float:
        return 1.0

    compressor(folder=tmp_path).run()
    with pytest.raises(SearchError, match="'metric' = \"accuracy\""):
        compressor(folder=tmp_path, metric=other).run()


def test_settings_are_checked_again_when_they_are_replaced() -> None:
    with pytest.raises(ArgumentError, match=r"margin is 0\.95"):
        dataclasses.replace(compressor(), margin=0.95)


@pytest.mark.parametrize(
    ("package", "extra", "runtime"),
    [
        ("botorch", "search", "torch"),
        ("gpytorch", "search", "torch"),
        ("onnx", "export", "onnxruntime"),
        ("onnxscript", "export", "openvino"),
    ],
)
def test_a_missing_extra_is_told_before_anything_is_searched(
    monkeypatch: pytest.MonkeyPatch, package: str, extra: str, runtime: str
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == package else found(name, *a)
    )
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*nncfx\[{extra}\]"):
        compressor(runtime=runtime, objective=Minimize(nothing_searched)).run()


def test_the_size_of_the_sample_is_that_of_the_data_not_of_the_example_inputs() -> None:
    result = compressor(eps=0.1, example_inputs=torch.zeros(1, 3)).run()
    assert any("at most 4 examples" in note for note in result.evidence.notes)


def test_a_scheme_that_reaches_little_of_the_model_is_told_in_the_evidence() -> None:
    model = nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(16, 2))
    tokens = torch.randint(0, 50, (4, 2))
    data = [(tokens, BATCH[1])]
    result = compressor(model=model, trainloader=data, valloader=data).run()
    # Prune takes the weight of the linear layer: 32 of 400 + 34
    assert any("reaches 32 of 434 parameters (7.4 %)" in note for note in result.evidence.notes)


def takes_a_mapping() -> nn.Module:
    """A forward whose only input is a mapping."""
    return Function(lambda m, batch: m.inner(batch["x"]), inner=linear())


def test_a_mapping_that_is_one_input_is_told_to_come_in_a_tuple() -> None:
    x, targets = BATCH
    with pytest.raises(ArgumentError, match="takes the mapping whole wants it in a tuple"):
        check_training_step(takes_a_mapping(), [({"x": x}, targets)], F.cross_entropy)
    check_training_step(takes_a_mapping(), [(({"x": x},), targets)], F.cross_entropy)


def branch_on_values() -> nn.Module:
    """Runs, but cannot be exported."""
    return Function(lambda m, x: m.inner(x if x.sum() > 0 else -x), inner=linear())


@pytest.mark.parametrize(
    "scheme",
    [Prune(layers=("lstm",)), Compose([Prune(), AtLevel(Cluster(layers=("lstm",)), 0.5)])],
)
def test_a_scheme_without_layers_is_refused_before_the_model_is_judged(scheme: Scheme) -> None:
    def metric(*_: object) -> float:
        pytest.fail("the model was judged")

    said = r"layers=\('lstm',\)\) finds no layer .* The kinds of layers here are \['linear'\]\."
    with pytest.raises(CompressionError, match=said):
        compressor(scheme=scheme, metric=metric).run()


def test_a_model_that_the_runtime_cannot_have_is_refused_before_the_first_trial(
    tmp_path: Path,
) -> None:
    model = branch_on_values()
    run = compressor(model=model, runtime="onnxruntime", optimizer=DC(), folder=tmp_path).run
    with pytest.raises(ExportError, match="Function cannot be exported"):
        run()
    assert not (tmp_path / "journal.jsonl").exists()


def test_a_model_whose_weights_lie_channels_last_comes_to_its_end() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4, 2))
    data = [(torch.randn(4, 3, 4, 4), BATCH[1])]
    result = compressor(
        model=model.to(memory_format=torch.channels_last), trainloader=data, valloader=data
    ).run()
    assert result.evidence.dense.file_bytes > 4 * result.evidence.dense.parameters
