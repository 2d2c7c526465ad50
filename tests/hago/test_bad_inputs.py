"""What a user gets wrong, and what is said then."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nncfx import hago
from nncfx.errors import ArgumentError, CompressionError, SearchError, StorageError
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.targets import Hardware


def search(
    graph: hago.QuantGraph,
    hardware: Hardware,
    dataset: LabelledBatches,
    **more: Any,  # noqa: ANN401 (passed on)
) -> tuple[hago.Strategy, float]:
    return hago.search_quantize_strategy(graph, hardware, dataset, tuner="default", **more)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        *(("bits", one, rf"{one} bits at place 0, .* 2 to 32") for one in (-3, 0, 1, 7.5, 33)),
        *(
            ("thresholds", one, r"at node 0; .* positive and finite")
            for one in (0.0, -1.0, float("nan"), float("inf"), (1.0, 0.0))
        ),
    ],
)
def test_bits_and_thresholds_that_no_integer_has_are_refused(
    graph: hago.QuantGraph,
    vnni: Hardware,
    dataset: LabelledBatches,
    field: str,
    value: float,
    message: str,
) -> None:
    strategy, _ = search(graph, vnni, dataset)
    wrong = replace(strategy, **{field: (value, *getattr(strategy, field)[1:])})
    with pytest.raises(CompressionError, match=message):
        hago.create_quantizer(graph, vnni, wrong)


@pytest.mark.parametrize(
    ("cut", "match"),
    [
        (lambda x, y: (x[:0], y[:0]), "no sample"),
        (lambda x, y: (x, y[:5]), r"shape \(5,\) for logits of shape \(32, 4\)"),
        (lambda x, y: (x, y[:, None]), r"shape \(32, 1\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    graph: hago.QuantGraph,
    dataset: LabelledBatches,
    cut: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    match: str,
) -> None:
    images, labels = dataset[0]
    assert isinstance(images, torch.Tensor)
    with pytest.raises(ArgumentError, match=match):
        hago.top1_accuracy(graph.model, [cut(images, labels)])


@pytest.mark.parametrize("value", [None, "much", float("nan"), float("inf")])
def test_what_cannot_be_compared_is_refused(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, value: float, tmp_path: Path
) -> None:
    for what, settings in (
        ("evaluation", hago.QuantizeSettings(evaluate=lambda _, __: value)),
        ("score", hago.QuantizeSettings(score=lambda _, __: value)),
    ):
        with pytest.raises(SearchError, match=f"The {what} returned {value!r} for bits"):
            search(graph, vnni, dataset, settings=settings, log=tmp_path / "log.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value"), [("min_bits", 1), ("min_bits", 4.5), ("min_bits", "four"), ("processes", 0)]
)
def test_settings_that_are_no_whole_number_of_their_range_are_refused(
    name: str,
    value: Any,  # noqa: ANN401 (no number)
) -> None:
    with pytest.raises(ArgumentError, match=rf"{name} is {value!r}, and must be a whole number"):
        hago.QuantizeSettings(**{name: value})


def test_the_name_of_a_hardware_and_a_model_are_refused(
    model: nn.Module, graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches
) -> None:
    strategy, _ = search(graph, vnni, dataset)
    name: Any = "onnxruntime"
    plain: Any = model
    for call in (
        lambda g, h: search(g, h, dataset),
        lambda g, h: hago.create_quantizer(g, h, strategy),
    ):
        with pytest.raises(ArgumentError, match=r"hardware is 'onnxruntime'\. Give .* hardware_n"):
            call(graph, name)
        with pytest.raises(ArgumentError, match=r"graph is a Residual\. Give what hago\.prepare"):
            call(plain, vnni)


def test_other_labels_or_another_judge_do_not_go_on_from_a_log(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    found = search(graph, vnni, dataset, log=log)
    assert search(graph, vnni, dataset, log=log) == found
    others = [(images, 3 - labels) for images, labels in dataset]
    with pytest.raises(SearchError, match="its 'judged_by' differ"):
        search(graph, vnni, others, log=log)
    half = hago.QuantizeSettings(evaluate=lambda _, __: 0.5)
    with pytest.raises(SearchError, match=r"its 'judged_by' differ.*In the log: top1_accuracy "):
        search(graph, vnni, dataset, log=log, settings=half)


def test_a_log_from_before_labels_were_named_goes_on(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    found = search(graph, vnni, dataset, log=log)
    line = json.loads(log.read_text())
    del line["settings"]["judged_by"]
    log.write_text(json.dumps(line, sort_keys=True) + "\n")
    assert search(graph, vnni, dataset, log=log) == found
    assert len(log.read_text().splitlines()) == 1


def test_a_log_of_another_hardware_is_told_by_its_name(
    graph: hago.QuantGraph,
    vnni: Hardware,
    sample: Hardware,
    dataset: LabelledBatches,
    tmp_path: Path,
) -> None:
    """Not by the topology, which differs as well."""
    search(graph, vnni, dataset, log=tmp_path / "log.jsonl")
    with pytest.raises(
        SearchError, match=r"'hardware' differ.* In the log: onnxruntime; now: hago"
    ):
        search(graph, sample, dataset, log=tmp_path / "log.jsonl")


def test_a_folder_is_no_log(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, tmp_path: Path
) -> None:
    for read in (
        hago.read_log,
        hago.best_strategy,
        lambda at: search(graph, vnni, dataset, log=at),
    ):
        with pytest.raises(StorageError, match=r"cannot be read .* Give the path of a file"):
            read(tmp_path)


def test_a_kernel_for_what_does_not_exist_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"'conv2e' is neither .* Did you mean 'conv'"):
        hago.integer_kernel("conv2e")


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (None, "it must hold batches"),
        (7, "it must hold batches"),
        ([], "holds no batch"),
        ([torch.zeros(1, 3, 8, 8)], r"Batch 0 of the dataset is a Tensor.*\(inputs, labels"),
    ],
)
def test_what_holds_no_batches_is_no_dataset(
    graph: hago.QuantGraph,
    vnni: Hardware,
    dataset: Any,  # noqa: ANN401 (no dataset)
    said: str,
) -> None:
    with pytest.raises(ArgumentError, match=said):
        search(graph, vnni, dataset)
