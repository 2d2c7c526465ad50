"""A latency table measured here: of the runtime, for the models that it was measured on."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.export import export_onnx
from nncfx.runtimes import LatencyTable, TimingPlan, Variant, measured_table, time_path
from nncfx.tracing import trace

IMAGE = torch.ones(1, 3, 48, 48)


def variant(width: int, folder: Path) -> Variant:
    model = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3)).eval()
    file = export_onnx(model, folder / f"{width}.onnx", IMAGE, dynamic_batch=False)
    return Variant(graph=trace(model, IMAGE), path=file, modules=file.modules)


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> list[Variant]:
    folder = tmp_path_factory.mktemp("variants")
    return [variant(width, folder) for width in (16, 48, 96, 128)]


@pytest.fixture(scope="module")
def table(variants: list[Variant]) -> LatencyTable:
    return measured_table(variants[:3], IMAGE, seconds=0.1)


def test_it_says_what_it_was_measured_with(table: LatencyTable) -> None:
    assert table.machine["runtime"] == "onnxruntime"
    assert table.machine["threads"] == "1"


def test_it_predicts_what_it_has_measured(table: LatencyTable, variants: list[Variant]) -> None:
    # A busy machine may take another time for the same model: a factor of two is plenty, and
    # the widest takes ten times as long as the narrowest.
    for one in (variants[0], variants[2]):
        plan = TimingPlan(seconds=0.1, clock="auto")
        measured = time_path(one.path, IMAGE, threads=1, plan=plan).median_ms
        assert 0.5 < table.predict_ms(one.graph) / measured < 2


def test_a_wider_model_is_predicted_slower(table: LatencyTable, variants: list[Variant]) -> None:
    predicted = [table.predict_ms(one.graph) for one in variants]
    assert predicted == sorted(predicted)


def test_one_variant_is_no_table(variants: list[Variant]) -> None:
    with pytest.raises(ArgumentError, match="two at least"):
        measured_table(variants[:1], IMAGE, seconds=0.0)
