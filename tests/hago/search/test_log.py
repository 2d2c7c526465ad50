"""The log of a search."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nncfx import hago
from nncfx.errors import CompressionError, SearchError, StorageError
from nncfx.hago.search.log import TrialLog, TrialRecord, append_record

SETTINGS = {"tuner": "greedy"}


@pytest.fixture
def strategy() -> hago.Strategy:
    topology = hago.Topology((False, True), (True, False, True))
    return hago.Strategy(12345, topology, (8, 4), (1.0, (0.5, 0.25)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def record_of(
    strategy: hago.Strategy,
    score: Callable[[tuple[int, ...]], float],
    bits: tuple[int, ...] | None = None,
) -> TrialRecord:
    strategy = replace(strategy, bits=bits or strategy.bits)
    return TrialRecord(strategy, score, score, SETTINGS)


def test_what_is_written_is_read(path: Path, strategy: hago.Strategy) -> None:
    path = path.parent / "deeper" / "log.jsonl"  # a folder that is made
    records = [record_of(strategy, 0.5), record_of(strategy, 0.75, (6, 5))]
    for one in records:
        append_record(path, one)
    assert hago.read_log(path) == records


def test_a_line_has_the_keys_of_hagos_log_sorted(path: Path, strategy: hago.Strategy) -> None:
    append_record(path, record_of(strategy, 0.5))
    line = path.read_text()
    document = json.loads(line)
    assert line == json.dumps(document, sort_keys=True) + "\n"
    assert document["strategy"] == {
        "model_hash": 12345,
        "topology": {"node_conds": [False, True], "edge_conds": [True, False, True]},
        "bits": [8, 4],
        "thresholds": [1.0, [0.5, 0.25]],
    }
    assert document["result"]["accuracy"] == 0.5
    assert document["version"] == 1


def test_the_best_has_the_highest_score_and_then_the_fewest_bits(
    path: Path, strategy: hago.Strategy
) -> None:
    for score, bits in ((0.5, (8, 8)), (0.7, (8, 7)), (0.7, (6, 6)), (0.6, (4, 4))):
        append_record(path, record_of(strategy, score, bits))
    assert hago.best_strategy(path).bits == (6, 6)


def test_a_line_without_an_end_is_dropped_and_written_over(
    path: Path, strategy: hago.Strategy
) -> None:
    append_record(path, record_of(strategy, 0.5))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert len(hago.read_log(path)) == 1
    append_record(path, record_of(strategy, 0.6))
    assert [one.score for one in hago.read_log(path)] == [0.5, 0.6]


def test_there_is_nothing_in_a_log_that_does_not_exist(path: Path) -> None:
    assert hago.read_log(path) == []
    with pytest.raises(StorageError, match="holds no trial"):
        hago.best_strategy(path)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda _: "no JSON\n", "Line 2 of .* is not a record of a trial"),
        (lambda one: one.replace('"version": 1', '"version": 9'), "log version 9"),
        (lambda one: one.replace("[8, 4]", "[8, 99]"), r"bits\[1\] is 99; a number at most 32"),
        (lambda one: one.replace('"accuracy": 0.5', '"accuracy": NaN'), "NaN is not finite"),
        (lambda one: one.replace('"accuracy": 0.5', '"accuracy": 1e999'), "not finite"),
        (lambda one: one.replace('"settings"', '"other"'), "KeyError"),
        (lambda one: one.replace("0.25", "-0.25"), "thresholds"),
    ],
)
def test_a_damaged_line_is_refused_with_its_number(
    path: Path, strategy: hago.Strategy, damage: Callable[[str], str], told: str
) -> None:
    append_record(path, record_of(strategy, 0.5))
    line = path.read_text()
    path.write_text(line + damage(line))
    with pytest.raises(StorageError, match=told):
        hago.read_log(path)


def test_a_log_of_another_model_is_refused(path: Path, strategy: hago.Strategy) -> None:
    append_record(path, record_of(strategy, 0.5))
    with pytest.raises(CompressionError, match="hash 12345, and this one has 99"):
        TrialLog(path, replace(strategy, model_hash=99), SETTINGS)


def test_a_strategy_of_another_model_is_refused(
    path: Path, strategy: hago.Strategy, graph: hago.QuantGraph
) -> None:
    append_record(path, record_of(strategy, 0.5))
    with pytest.raises(CompressionError, match="search again"):
        hago.best_strategy(path, graph)


def test_a_log_of_other_settings_is_refused(path: Path, strategy: hago.Strategy) -> None:
    append_record(path, record_of(strategy, 0.5))
    with pytest.raises(SearchError, match=r"'tuner' differ.*greedy; now: random"):
        TrialLog(path, strategy, {"tuner": "random"})


@pytest.mark.parametrize(("name", "value"), [("thresholds", (2.0, 2.0)), ("bits", (8, 5))])
def test_a_log_of_other_thresholds_or_that_asked_for_other_bits_is_refused(
    path: Path, strategy: hago.Strategy, name: str, value: tuple[float, ...]
) -> None:
    append_record(path, record_of(strategy, 0.5))
    log = TrialLog(path, strategy, SETTINGS)
    with pytest.raises(SearchError, match=f"'{name}' differ"):
        log.upcoming([replace(strategy, **{name: value})])


def hago_line(result: dict[str, float | None], bits: list[int], **more: object) -> str:
    strategy = {"model_hash": -7, "bits": bits, "thresholds": [0.0, 2.5], **more}
    return json.dumps({"version": 0.1, "strategy": strategy, "result": result}) + "\n"


def test_a_log_that_hago_wrote_is_read(path: Path) -> None:
    path.write_text(hago_line({"accuracy": 0.625, "kl_distance": None}, [8, 7]))
    [record] = hago.read_log(path)
    assert (record.score, record.accuracy, record.strategy.bits) == (0.625, 0.625, (8, 7))
    assert record.strategy.model_hash == -7
    assert record.strategy.topology == hago.Topology((), ())
    assert record.strategy.thresholds == (1.0, 2.5)


def test_a_log_of_hagos_first_version_has_topology_and_both_accuracies(path: Path) -> None:
    topology = {"node_conds": [False, True], "edge_conds": [True]}
    path.write_text(hago_line({"sim_acc": 0.5, "quant_acc": 0.75}, [8], topology=topology))
    [record] = hago.read_log(path)
    assert record.accuracy == 0.75
    assert record.strategy.topology == hago.Topology((False, True), (True,))


def test_a_log_of_hagos_with_no_accuracy_is_refused(path: Path) -> None:
    path.write_text(hago_line({"accuracy": None}, [8]))
    with pytest.raises(StorageError, match="accuracy or quant_acc or sim_acc"):
        hago.read_log(path)


def test_greedy_search_replays_a_log_that_hago_wrote(path: Path) -> None:
    # the description of Hago's greedy search, followed by hand over two edges
    recorded = [
        ([8, 6], 0.61),
        ([7, 6], 0.61),  # a tie goes to fewer bits
        ([6, 6], 0.60),  # worse than the best: the edge is decided
        ([7, 6], 0.61),
        ([7, 5], 0.63),
        ([7, 4], 0.63),
    ]
    path.write_text("".join(hago_line({"accuracy": score}, bits) for bits, score in recorded))
    tuner = hago.GreedySearchTuner(((8, 7, 6, 5, 4), (6, 5, 4)))
    for record in hago.read_log(path):
        assert tuner.ask() == [record.strategy.bits]
        tuner.tell([record.strategy.bits], [record.score])
    assert tuner.ask() == []
    assert tuner.best == hago.best_strategy(path).bits == (7, 4)
