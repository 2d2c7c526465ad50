"""The latency table: what it measures it gives back, and what lies between is interpolated."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, RuntimeFailure, StorageError
from nncfx.graph import NNCFGraph
from nncfx.runtimes import LatencyTable, fitted_table, predicted_latency
from nncfx.tracing import trace

IMAGE = torch.ones(1, 3, 16, 16)
MACHINE = {"runtime": "by hand"}


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, 2 * width, 3))


def graph_of(width: int) -> NNCFGraph:
    return trace(network(width), IMAGE)


def times_of(width: int) -> dict[str, float]:
    """A machine on which a convolution takes 0.1 ms and a microsecond for each channel pair."""
    return {"0": 0.1 + 3 * width / 1000, "2": 0.1 + 2 * width * width / 1000}


def table_of(*widths: int, scale: float = 1.0) -> LatencyTable:
    times = [times_of(width) for width in widths]
    runs = [scale * sum(one.values()) for one in times]
    return fitted_table([graph_of(width) for width in widths], times, runs, machine=MACHINE)


@pytest.mark.parametrize("width", [8, 32, 64])
def test_a_measured_model_gets_its_measured_time(width: int) -> None:
    table = table_of(8, 16, 32, 48, 64, scale=1.1)
    expected = 1.1 * sum(times_of(width).values())
    assert table.predict_ms(graph_of(width)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("width", [12, 24, 40, 56])
def test_between_measurements_the_time_is_interpolated(width: int) -> None:
    table = table_of(8, 16, 32, 48, 64)
    expected = sum(times_of(width).values())
    assert table.predict_ms(graph_of(width)) == pytest.approx(expected, rel=0.05)


def test_what_takes_no_time_takes_none() -> None:
    assert table_of(8, 16).module_ms(graph_of(12))["1"] == 0.0


def test_wider_is_never_predicted_faster() -> None:
    table = table_of(8, 16, 32, 48, 64)
    predicted = [table.predict_ms(graph_of(width)) for width in range(8, 65, 8)]
    assert predicted == sorted(predicted)


def test_modules_of_one_kind_share_their_measurements() -> None:
    pair = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1))
    graph = trace(pair, IMAGE)
    table = fitted_table([graph, graph], [{"0": 1.0, "1": 3.0}] * 2, [4.0, 4.0], machine=MACHINE)
    assert len(table.samples) == 1
    assert table.module_ms(graph)["0"] == pytest.approx(2.0, rel=0.01)


def test_kernels_and_groups_make_kinds_of_their_own() -> None:
    kinds = [
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 5, padding=2),
        nn.Conv2d(4, 4, 3, padding=1, groups=4),
        nn.Conv2d(4, 4, 3, padding=1, groups=2),
    ]
    graph = trace(nn.Sequential(*kinds), torch.ones(1, 4, 16, 16))
    times = {str(number): 1.0 for number in range(4)}
    assert len(fitted_table([graph] * 2, [times] * 2, [4.0] * 2, machine=MACHINE).samples) == 4


def test_a_kind_that_was_never_measured_is_named() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 7))
    with pytest.raises(RuntimeFailure, match=r"no measurement of '0', conv2d\(7, 7\)"):
        table_of(8, 16).predict_ms(trace(model, IMAGE))


def test_it_survives_json() -> None:
    table = table_of(8, 16, 32)
    again = LatencyTable.from_json(table.to_json())
    assert again == table
    assert again.predict_ms(graph_of(24)) == table.predict_ms(graph_of(24))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is not a latency table"),
        ("{", "is not a latency table"),
        ('{"latency_table": 9}', "is of version 9; this nncfx reads version 1"),
    ],
)
def test_a_text_that_is_no_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        LatencyTable.from_json(text)


def test_too_few_measurements_are_refused() -> None:
    with pytest.raises(ArgumentError, match="1 graphs, 1 profiles and 1 runs"):
        table_of(8)


def test_profiles_of_other_names_are_refused() -> None:
    graphs = [graph_of(8), graph_of(16)]
    with pytest.raises(ArgumentError, match="give no time to any module"):
        fitted_table(graphs, [{"conv": 1.0}] * 2, [1.0, 1.0], machine=MACHINE)


def test_one_disturbed_run_does_not_move_the_scale() -> None:
    widths = (8, 16, 32)
    times = [times_of(width) for width in widths]
    runs = [sum(one.values()) for one in times]
    runs[0] *= 10
    table = fitted_table([graph_of(width) for width in widths], times, runs, machine=MACHINE)
    assert table.scale == pytest.approx(1.0, rel=0.01)


def test_the_objective_predicts_a_candidate_and_is_minimized() -> None:
    table = table_of(8, 16, 32)
    objective = predicted_latency(table, IMAGE)
    assert (objective.unit, objective.maximize) == ("ms", False)
    candidate = SimpleNamespace(model=network(24))
    assert objective.evaluate(candidate) == table.predict_ms(graph_of(24))  # type: ignore[arg-type]  # a stand-in
