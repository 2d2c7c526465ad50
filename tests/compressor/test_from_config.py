"""A search from JSON is the search from Python."""

import dataclasses
import json
from pathlib import Path
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
from nncfx.errors import ConfigError
from nncfx.lc import ADMM, DC, LC, DCFineTuned
from nncfx.objectives import macs
from nncfx.schemes import Compose, FilterPrune, LowRank, Quantize
from nncfx.search import SearchSettings

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
