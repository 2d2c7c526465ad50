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
from nncfx.config import (
    ADMMRecovery,
    DCFineTunedRecovery,
    DCRecovery,
    LCRecovery,
    NNCFConfig,
)
from nncfx.errors import ArgumentError, ConfigError
from nncfx.lc import ADMM, DC, LC, DCFineTuned
from nncfx.objectives import macs
from nncfx.runtimes.latency_table import fitted_table
from nncfx.schemes import Compose, FilterPrune, LowRank, Quantize
from nncfx.search import SearchSettings
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
        {"search": SEARCH | {"margin": 0.01, "upper": 0.9, "seed": 3, "title": "t", "name": "n"}},
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
    assert (compressor.title, compressor.name, compressor.folder) == ("t", "n", None)


@pytest.mark.slow
def test_a_search_from_a_file_runs(
    trained: nn.Module, task: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "search.json"
    path.write_text(json.dumps({"search": SEARCH}))
    config = nncfx.NNCFConfig.from_json(path)
    result = Compressor.from_config(config, model=trained, criterion=F.cross_entropy, **task).run()
    assert 1 < len(result.search.trials) <= 7
    assert result.search.threshold == pytest.approx(result.reference - 0.1)


@pytest.mark.parametrize(
    ("section", "recovery"),
    [
        (ADMMRecovery, ADMM),
        (DCRecovery, DC),
        (DCFineTunedRecovery, DCFineTuned),
        (LCRecovery, LC),
    ],
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
        ({"search": SEARCH | {"objective": "energy"}}, "search.objective: 'energy' is not known"),
        ({"search": SEARCH | {"margin": 0.2}}, "search.margin: 0.2 lies above 'eps'"),
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
