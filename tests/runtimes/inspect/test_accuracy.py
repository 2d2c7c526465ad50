"""The user's own metric, computed through the runtime."""

from collections.abc import Iterable

import pytest
import torch
from torch import nn

from nncfx.compressor.evaluation.metrics import accuracy
from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, metric_through, runtime_named


def batches(model: nn.Module, wrong: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Two batches of 8 and 4, labelled as the model sees them but for the first `wrong`."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(12, 3, 8, 8, generator=generator)
    labels = model(inputs).argmax(dim=1)
    labels[:wrong] = (labels[:wrong] + 1) % 5
    return [(inputs[:8], labels[:8]), (inputs[8:], labels[8:])]


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch"])
@pytest.mark.parametrize("wrong", [0, 3])
def test_the_accuracy_is_that_of_the_data(
    name: str, wrong: int, model: nn.Module, exported: ExportResult
) -> None:
    runtime = runtime_named(name)
    source = model if runtime.reads_modules else exported
    with runtime.build(source, BuildOptions(threads=1)) as session:
        assert metric_through(session, batches(model, wrong), accuracy) == 1 - wrong / 12


def test_a_batch_that_the_runtime_refuses_is_told(exported: ExportResult) -> None:
    bad = [(torch.ones(2, 4, 8, 8), torch.zeros(2, dtype=torch.long))]
    with (
        runtime_named("onnxruntime").build(exported, BuildOptions(threads=1)) as session,
        pytest.raises(RuntimeFailure, match="has shape"),
    ):
        metric_through(session, bad, accuracy)


def test_a_metric_that_fails_is_named(exported: ExportResult) -> None:
    def norm(model: nn.Module, _: Iterable[object]) -> float:
        return float(next(model.parameters()).norm())

    with (
        runtime_named("onnxruntime").build(exported, BuildOptions(threads=1)) as session,
        pytest.raises(ArgumentError, match=r"Metric 'norm' fails .* without parameters"),
    ):
        metric_through(session, [], norm)
