"""Channels go until a predicted latency is reached."""

from pathlib import Path

import pytest
import torch
from torch import nn

import programs
from nncfx.compressor import create_compressed_model, groups_within_latency, measured_widths
from nncfx.compressor.latency_budget import PredictedCosts
from nncfx.errors import ArgumentError, CompressionError, StorageError
from nncfx.graph.channels import Channels
from nncfx.runtimes import LatencyTable, fitted_table
from nncfx.schemes import group_masks, group_scores
from nncfx.thinning import prunable_channels, thin
from nncfx.tracing import trace

_IMAGE = torch.zeros(1, 3, 8, 8)


def _network(*widths: int) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    before = 3
    for width in widths:
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def _table(runtime: str = "none") -> LatencyTable:
    """Return a table of a machine where a channel of a convolution takes a millisecond."""
    graphs, times = [], []
    for widths in ((2, 2), (10, 20), (40, 40), (30, 5), (1, 40)):
        graphs.append(trace(_network(*widths).eval(), _IMAGE))
        times.append({"0": float(widths[0]), "3": float(widths[1])})
    sums = [sum(one.values()) for one in times]
    return fitted_table(graphs, times, sums, machine={"runtime": runtime})


@pytest.fixture
def model() -> nn.Module:
    return _network(40, 40).eval()


@pytest.fixture
def channels(model: nn.Module) -> Channels:
    return prunable_channels(model, _IMAGE)


def _scores(model: nn.Module, channels: Channels) -> list[torch.Tensor]:
    return group_scores(channels, dict(model.named_parameters()), "l1norm")


@pytest.mark.parametrize("limit", [60.0, 33.0, 10.0])
def test_as_few_channels_go_as_the_limit_asks_for(
    model: nn.Module, channels: Channels, limit: float
) -> None:
    scores = _scores(model, channels)
    keep = groups_within_latency(model, _IMAGE, channels, scores, table=_table(), limit_ms=limit)
    # a channel takes a millisecond; the table interpolates within a few per cent
    assert 0.85 * limit <= sum(int(mask.sum()) for mask in keep) <= 1.1 * limit
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, mask in group_masks(channels, keep, weights).items():
            weights[name].masked_fill_(~mask, 0)
    result = thin(model, _IMAGE, channels=channels)
    assert _table().predict_ms(trace(result.model, _IMAGE)) <= limit


def test_a_model_within_the_limit_loses_nothing(model: nn.Module, channels: Channels) -> None:
    keep = groups_within_latency(
        model, _IMAGE, channels, _scores(model, channels), table=_table(), limit_ms=100
    )
    assert all(mask.all() for mask in keep)


def test_widths_suit_the_runtime_of_the_table(model: nn.Module, channels: Channels) -> None:
    table = _table("onnxruntime")
    keep = groups_within_latency(
        model, _IMAGE, channels, _scores(model, channels), table=table, limit_ms=50
    )
    assert all(int(mask.sum()) in {4, 8, 12, 16, 32, 40} for mask in keep)


def test_a_limit_below_the_narrowest_model_is_an_error_with_its_time(
    model: nn.Module, channels: Channels
) -> None:
    before = {name: one.clone() for name, one in model.state_dict().items()}
    with pytest.raises(CompressionError, match=r"narrowest model .* above the limit of 0.001 ms"):
        groups_within_latency(
            model, _IMAGE, channels, _scores(model, channels), table=_table(), limit_ms=0.001
        )
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_no_time_is_refused(
    model: nn.Module, channels: Channels, limit: float
) -> None:
    with pytest.raises(ArgumentError, match=r"limit_ms is .*more than 0 milliseconds"):
        groups_within_latency(
            model, _IMAGE, channels, _scores(model, channels), table=_table(), limit_ms=limit
        )


def test_a_measured_table_knows_every_width(model: nn.Module, channels: Channels) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    table = measured_widths(model, _IMAGE, channels, variants=3)
    assert table.machine["runtime"] == "onnxruntime"
    assert table.predict_ms(trace(model, _IMAGE)) > 0
    assert table.predict_ms(trace(_network(8, 8).eval(), _IMAGE)) > 0


def test_one_variant_is_not_enough_for_a_table(model: nn.Module, channels: Channels) -> None:
    with pytest.raises(ArgumentError, match="at least 2"):
        measured_widths(model, _IMAGE, channels, variants=1)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return a file of the table where a channel takes a millisecond."""
    path = tmp_path / "table.json"
    path.write_text(_table().to_json(), encoding="utf-8")
    return str(path)


def test_masks_save_what_the_table_says_of_the_widths_they_leave(
    model: nn.Module, channels: Channels
) -> None:
    """By hand: 80 channels take 80 ms; 30 of the first 40 are a quarter of it, and a little."""
    costs = PredictedCosts(model, _IMAGE, channels, _table())
    rows = torch.arange(40).view(40, 1, 1, 1) >= 30
    assert costs.saved({}) == 0
    assert costs.saved({"0.weight": rows}) == pytest.approx(30 / 80, abs=0.02)
    assert costs.saved({"0.weight": rows.expand(40, 3, 3, 3)}) == costs.saved({"0.weight": rows})
    # of a set that goes whole one stays
    every = torch.zeros(40, 1, 1, 1)
    assert costs.saved({"0.weight": every}) == pytest.approx(39 / 80, abs=0.02)


@pytest.mark.parametrize("target", [0.3, 0.7])
def test_a_config_prunes_to_a_fraction_of_the_predicted_latency(
    model: nn.Module, file: str, target: float
) -> None:
    """From JSON, at once: what the table predicts of the thinned model is what was asked for."""
    table, dense = _table(), trace(model, _IMAGE)
    params = {"pruning_latency_target": target, "latency_table": file, "align": 1}
    params |= {"prune_first_conv": True}
    item = {"algorithm": "filter_pruning", "pruning_init": target, "params": params}
    _, compressed = create_compressed_model(model, {"compression": item}, _IMAGE)
    thinned = thin(compressed, _IMAGE).model
    saved = 1 - table.predict_ms(trace(thinned, _IMAGE)) / table.predict_ms(dense)
    # at least the target; one channel more is 1/80, and the table is good to a few per cent
    assert target <= saved <= target + 0.03


def test_a_latency_out_of_reach_is_told_before_anything_changes(
    model: nn.Module, file: str
) -> None:
    params = {"pruning_latency_target": 0.99, "latency_table": file}
    item = {"algorithm": "filter_pruning", "params": params}
    before = type(model)
    with pytest.raises(CompressionError, match=r"predicted latency of this model, not 0\.99"):
        create_compressed_model(model, {"compression": item}, _IMAGE)
    assert type(model) is before


def test_a_table_that_cannot_be_read_is_told(model: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}", encoding="utf-8")
    for name, reason in (("gone.json", "gone.json"), ("no.json", "not a latency table")):
        path = str(tmp_path / name)
        params = {"pruning_latency_target": 0.5, "latency_table": path}
        item = {"algorithm": "structure_pruning", "params": params}
        with pytest.raises(StorageError, match=reason):
            create_compressed_model(model, {"compression": item}, _IMAGE)


def test_a_process_that_imports_nothing_else_reads_a_table(tmp_path: Path) -> None:
    """What predicts latency stands above the controllers, which find it by its name."""
    code = """
import torch, nncfx
params = {"pruning_latency_target": 0.5, "latency_table": "gone.json"}
item = {"algorithm": "structure_pruning", "params": params}
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
try:
    nncfx.create_compressed_model(model, {"compression": item}, torch.ones(1, 4))
except nncfx.errors.StorageError as error:
    print(error)
"""
    (tmp_path / "script.py").write_text(code)
    assert "gone.json" in programs.run(tmp_path, tmp_path / "script.py").stdout
