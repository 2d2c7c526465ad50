"""A latency table measured here: of the runtime, for the models that it was measured on.

`benchmarks/runtime_predictor.py` says how well it predicts.
"""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.export import export_onnx
from nncfx.runtimes import LatencyTable, Variant, measured_table, read_table
from nncfx.tracing import trace

IMAGE = torch.ones(1, 3, 48, 48)


def variant(width: int, folder: Path) -> Variant:
    model = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3)).eval()
    file = export_onnx(model, folder / f"{width}.onnx", IMAGE, dynamic_batch=False)
    return Variant(graph=trace(model, IMAGE), path=file, modules=file.modules)


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> list[Variant]:
    folder = tmp_path_factory.mktemp("variants")
    return [variant(width, folder) for width in (16, 48, 96)]


@pytest.fixture(scope="module")
def table(variants: list[Variant]) -> LatencyTable:
    return measured_table(variants, IMAGE, seconds=0.0, runs=2)


def test_it_says_what_it_was_measured_with(table: LatencyTable) -> None:
    assert table.machine["runtime"] == "onnxruntime"
    assert table.machine["threads"] == "1"
    assert table.machine.keys() >= {"version", "processor", "byte products"}


def test_every_module_that_computes_has_a_time_for_each_variant(table: LatencyTable) -> None:
    convolutions = {
        kind: samples for kind, samples in table.samples.items() if kind.startswith("conv2d")
    }
    assert [len(samples) for samples in convolutions.values()] == [3, 3]
    assert all(one.ms > 0 for samples in convolutions.values() for one in samples)


def test_it_predicts_a_width_that_was_not_measured(table: LatencyTable, tmp_path: Path) -> None:
    assert table.predict_ms(variant(64, tmp_path).graph) > 0


def test_a_table_of_another_processor_is_told(
    table: LatencyTable, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(table, machine={**table.machine, "processor": "Z80"})
    with caplog.at_level(logging.WARNING):
        assert read_table(table.to_json()) == table
        assert not caplog.records
        assert read_table(other.to_json()) == other
    assert "measured on another processor: processor 'Z80', here '" in caplog.text


def test_one_variant_is_no_table(variants: list[Variant]) -> None:
    with pytest.raises(ArgumentError, match="two at least"):
        measured_table(variants[:1], IMAGE, seconds=0.0)
