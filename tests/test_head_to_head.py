"""The comparison with other tools counts by hand's numbers, and loses no result to a kill."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "head_to_head"
EXAMPLE = torch.zeros(1, 3, 8, 8)


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("judges")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("run")


def _network(width: int) -> nn.Sequential:
    first, second = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 2, 1, stride=2)
    norm = nn.BatchNorm2d(width)
    norm.bias.data.sub_(9)  # so that ReLU lets nothing through
    norm.running_mean.add_(99)
    return nn.Sequential(first, norm, nn.ReLU(), second, nn.Flatten(), nn.Linear(2 * 4 * 4, 10))


def test_a_masked_channel_counts_as_little_as_one_that_is_gone(judges: ModuleType) -> None:
    masked = _network(4)
    for parameter in (*masked[0].parameters(), *masked[1].parameters()):
        parameter.data[1] = 0
    expected = 3 * 3 * 9 * 64 + 3 * 2 * 16 + 32 * 10
    assert judges.living_macs(masked, EXAMPLE) == expected
    assert judges.living_macs(_network(3), EXAMPLE) == expected


def test_a_channel_that_a_norm_shifts_stays(judges: ModuleType) -> None:
    network = _network(4)
    network[0].weight.data[1] = 0
    network[0].bias.data[1] = 0
    # nothing multiplies for it in the first layer, but the second reads the norm's shift
    expected = 3 * 3 * 9 * 64 + 4 * 2 * 16 + 32 * 10
    assert judges.living_macs(network, EXAMPLE) == expected


def test_sparsity_is_of_weights_alone(judges: ModuleType) -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    nn.init.zeros_(network[0].bias)
    network[0].weight.data[0] = 0
    assert judges.sparsity(network) == 0.25


def test_a_line_that_a_kill_has_cut_is_written_anew(runner: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    runner.append(path, {"seed": 0})
    path.write_text(path.read_text() + '{"seed": 1, "accu')
    assert runner.read(path) == [{"seed": 0}]
    runner.append(path, {"seed": 1})
    assert runner.read(path) == [{"seed": 0}, {"seed": 1}]


def test_the_difference_is_of_pairs(runner: ModuleType) -> None:
    row = runner.ROWS["magnitude"]
    rows = {"nncfx": (0.80, 0.90), "nncf": (0.79, 0.88)}
    results = [
        {"seed": seed, **row.settings(tool), "accuracy": accuracy, "sparsity": 0.5}
        for tool, accuracies in rows.items()
        for seed, accuracy in enumerate(accuracies)
    ]
    unpaired = {"seed": 2, **row.settings("nncf"), "accuracy": 0.0, "sparsity": 0.0}
    lines = list(runner.table([*results, unpaired], [0, 1, 2]))[2:]
    ahead = "+1.50 ± 0.71"  # of 1 and 2, whose deviation is the root of 1/2
    assert lines == [
        f"| magnitude | 2 | nncfx | 50.00 ± 0.00 % sparsity | 85.00 ± 7.07 | {ahead} |",
        "|  |  | nncf | 50.00 ± 0.00 % sparsity | 83.50 ± 6.36 |  |",
    ]


def test_results_of_other_settings_do_not_count(runner: ModuleType) -> None:
    row = runner.ROWS["magnitude"]
    other = {"seed": 0, **row.settings("nncfx"), "batch": 1}
    assert runner.found([other], "magnitude", "nncfx", 0) is None
