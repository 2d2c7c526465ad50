"""A search from JSON is the search from Python."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.compressor import Compressor
from nncfx.compressor.from_config import arguments_from
from nncfx.config import ADMMRecovery, DCFineTunedRecovery, DCRecovery, LCRecovery, NNCFConfig
from nncfx.errors import ArgumentError, ConfigError
from nncfx.evidence import Evidence
from nncfx.evidence.formatting import candidate_words
from nncfx.lc import ADMM, DC, LC, DCFineTuned
from nncfx.objectives import macs
from nncfx.report import render_report
from nncfx.runtimes.predict.latency_table import fitted_table
from nncfx.schemes import AtLevel, Cluster, Compose, FilterPrune, LowRank, Prune, Quantize
from nncfx.search import Choice, Range, SearchSettings, Space, SpaceSettings
from nncfx.tracing import trace

SEARCH: dict[str, Any] = {
    "objective": "macs",
    "schemes": [
        {"name": "FilterPrune", "criteria": "l1norm", "align": 4},
        {"name": "Quantize", "dtype": "float16"},
    ],
    "optimizer": {"algorithm": "LC", "steps": 2, "lr": 0.05, "mb_iterations_per_l": 4},
    "eps": 0.1,
    "tolerance": 0.05,
    "max_evaluations": 3,
    "runtime": "torch",
}


def test_every_key_arrives(trained: nn.Module, task: dict[str, Any]) -> None:
    compressor = Compressor.from_config(
        {
            "search": SEARCH
            | {"margin": 0.01, "upper": 0.9, "seed": 3, "title": "t", "name": "n"}
            | {"warm_start": True, "stop_hopeless": True, "threads": 2}
        },
        model=trained,
        criterion=F.cross_entropy,
        **task,
    )
    assert compressor.objective is macs
    assert compressor.scheme == Compose([FilterPrune("l1norm", align=4), Quantize("float16")])
    assert compressor.optimizer == LC(steps=2, lr=0.05, mb_iterations_per_l=4)
    assert compressor.settings == SearchSettings(
        tolerance=0.05, max_evaluations=3, upper=0.9, seed=3
    )
    assert (compressor.eps, compressor.margin, compressor.runtime) == (0.1, 0.01, "torch")
    assert compressor.warm_start
    assert compressor.stop_hopeless
    assert compressor.threads == 2
    assert (compressor.title, compressor.name, compressor.folder) == ("t", "n", None)


@pytest.mark.slow
def test_a_search_from_a_file_finds_what_the_one_from_python_finds(
    trained: nn.Module, task: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "search.json"
    optimizer = {"algorithm": "DCFineTuned", "epochs": 3, "lr": 0.02}
    path.write_text(json.dumps({"search": SEARCH | {"optimizer": optimizer}}))
    config = nncfx.NNCFConfig.from_json(path)
    rest = {"model": trained, "criterion": F.cross_entropy, **task}
    from_file = Compressor.from_config(config, **rest).run()
    by_hand = Compressor(
        objective=macs,
        scheme=Compose([FilterPrune("l1norm", align=4), Quantize("float16")]),
        optimizer=DCFineTuned(epochs=3, lr=0.02),
        eps=0.1,
        settings=SearchSettings(tolerance=0.05, max_evaluations=3),
        runtime="torch",
        **rest,
    ).run()
    seen = [
        [(one.level, one.measurement) for one in result.search.trials]
        for result in (from_file, by_hand)
    ]
    assert seen[0] == seen[1]
    assert from_file.search.threshold == pytest.approx(from_file.reference - 0.1)
    levels = [level for level, _ in seen[0]]
    assert 0 < from_file.level in levels
    evidence = from_file.evidence
    assert evidence.compressed.macs < evidence.dense.macs
    weights = [one for one in from_file.model.parameters() if one.ndim > 1]
    # in the working dtype, the numbers are those of float16 all the same
    assert all(torch.equal(one, one.half().to(one.dtype)) for one in weights)


@pytest.mark.parametrize(
    ("section", "recovery"),
    [(ADMMRecovery, ADMM), (DCRecovery, DC), (DCFineTunedRecovery, DCFineTuned), (LCRecovery, LC)],
)
def test_a_recovery_in_json_has_the_settings_and_defaults_of_its_class(
    section: type, recovery: type
) -> None:
    values = {field.name: field.default for field in dataclasses.fields(recovery)}
    values.pop("optimizer_factory", None)  # a function, which JSON cannot hold
    assert section().settings == values


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "search: the section is missing"),
        (
            {"search": SEARCH, "compression": {"algorithm": "magnitude_sparsity"}},
            "compression: its algorithms are for a training loop",
        ),
        (
            {"search": SEARCH, "ignored_scopes": "{re}Conv2d"},
            "ignored_scopes: is for algorithms in a training loop",
        ),
        (
            {"search": SEARCH, "target_scopes": ["{re}Linear"]},
            "target_scopes: is for algorithms in a training loop",
        ),
        ({"search": SEARCH | {"objective": "energy"}}, "search.objective: 'energy' is not known"),
        ({"search": SEARCH | {"margin": 0.2}}, "search.margin: 0.2 is above 'eps'"),
        (
            {"search": SEARCH | {"optimizer": {"algorithm": "LC", "step": 2}}},
            "search.optimizer.step: unknown key",
        ),
    ],
)
def test_faults_name_their_place(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Compressor.from_config(config)


def test_a_search_is_not_silently_left_out_of_training() -> None:
    with pytest.raises(ConfigError, match="search: a search has a training loop of its own"):
        nncfx.create_compressed_model(nn.Linear(2, 2), {"search": SEARCH}, torch.ones(1, 2))


SPACE: dict[str, Any] = {
    "objective": "footprint",
    "schemes": [
        {"name": "Prune", "layers": "conv2d", "level": [0.2, 0.9]},
        {"name": "Prune", "layers": "linear"},
        {"name": "Cluster", "choices": {"bits": [2, 4, 6]}},
        {"name": "Quantize", "dtype": "float16"},
    ],
    "optimizer": {"algorithm": "DC"},
    "upper": 0.5,
    "eps": 0.1,
    "max_evaluations": 4,
    "runtime": "torch",
}


def test_levels_and_choices_of_schemes_are_a_space() -> None:
    found = arguments_from(NNCFConfig.from_dict({"search": SPACE}))
    assert found["space"] == Space(
        [
            Range("level", 0.0, 0.5),
            Range("Prune level", 0.2, 0.9),
            Choice("Cluster bits", (2, 4, 6)),
        ]
    )
    candidate = {"level": 0.1, "Prune level": 0.7, "Cluster bits": 4}
    assert found["scheme"](candidate) == Compose(
        [
            AtLevel(Prune(layers=("conv2d",)), 0.7),
            Prune(layers=("linear",)),
            Cluster(bits=4),
            Quantize("float16"),
        ]
    )
    assert found["settings"] == SpaceSettings(max_evaluations=4)


def test_a_space_from_a_file_is_searched(trained: nn.Module, task: dict[str, Any]) -> None:
    result = Compressor.from_config(
        {"search": SPACE}, model=trained, criterion=F.cross_entropy, **task
    ).run()
    assert set(result.candidate) == {"level", "Prune level", "Cluster bits"}
    assert len(result.model.inner.weight.unique()) <= 2 ** int(result.candidate["Cluster bits"])

    (study,) = result.evidence.studies
    assert [one.number for one in study.samples] == list(range(SPACE["max_evaluations"]))
    assert [one.number for one in study.samples if study.is_chosen(one)] == [study.chosen]
    assert study.chosen_words == candidate_words(result.candidate)
    own, bits = (result.candidate[key] for key in ("Prune level", "Cluster bits"))
    assert f"AtLevel(Prune(layers=['conv2d']), own_level={own})" in study.scheme
    assert f"Cluster({bits})" in study.scheme
    assert Evidence.from_json(result.evidence.to_json()) == result.evidence
    page = render_report(result.evidence)
    assert "Pareto front" in page
    assert all(f"<td>{one.candidate}</td>" in page for one in study.samples)


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ({"name": "Prune", "level": [0.5]}, r"schemes\[0\]\.level: \[0\.5\] is not a range"),
        ({"name": "Prune", "level": [0.5, 0.2]}, "is not a range"),
        ({"name": "Cluster", "choices": {"rank": [1, 2]}}, "of 'Cluster' can be chosen: bits"),
        ({"name": "Cluster", "choices": {"bits": [4]}}, "is not a choice"),
        ({"name": "Cluster", "bits": 4, "choices": {"bits": [2, 4]}}, "choices.bits"),
    ],
)
def test_what_is_no_range_and_no_choice_is_refused(scheme: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        arguments_from({"search": SEARCH | {"schemes": [scheme]}})


def test_hopeless_trials_of_a_space_are_not_known() -> None:
    with pytest.raises(ConfigError, match="stop_hopeless"):
        arguments_from({"search": SPACE | {"stop_hopeless": True}})


def test_schemes_take_kinds_of_layers_and_ranks_from_the_config() -> None:
    config = NNCFConfig.from_dict(
        {
            "search": {
                "objective": "footprint",
                "schemes": [
                    {"name": "LowRank", "energy": 0.9, "layers": "lstm"},
                    {"name": "Quantize", "dtype": "int8", "layers": ["lstm", "embedding"]},
                ],
            }
        }
    )
    assert arguments_from(config)["scheme"] == Compose(
        [LowRank(energy=0.9, layers=("lstm",)), Quantize("int8", layers=("lstm", "embedding"))]
    )


def test_the_predicted_latency_comes_from_a_table(trained: nn.Module, tmp_path: Path) -> None:
    inputs = torch.zeros(2, 1, 8, 8)
    graphs = [trace(trained, inputs)] * 2
    times = dict.fromkeys(("", *dict(trained.named_modules())), 0.5)
    table = fitted_table(graphs, [times, times], [3.0, 3.0], machine={})
    path = tmp_path / "table.json"
    path.write_text(table.to_json())
    config = {"search": SEARCH | {"objective": "predicted", "latency_table": str(path)}}
    objective = arguments_from(config, inputs)["objective"]
    assert (objective.name, objective.unit) == ("predicted latency", "ms")
    assert not objective.maximize
    assert objective.evaluate(SimpleNamespace(model=trained)) == pytest.approx(3.0, rel=0.01)
    with pytest.raises(ArgumentError, match="Pass example_inputs"):
        arguments_from(config)


def test_a_table_without_its_objective_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"search\.latency_table: objective 'predicted' reads"):
        arguments_from({"search": SEARCH | {"objective": "predicted"}})
    with pytest.raises(ConfigError, match=r"search\.latency_table"):
        arguments_from({"search": SEARCH | {"latency_table": "table.json"}})
