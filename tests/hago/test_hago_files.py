"""Quantized graphs as ONNX files and in nncfx's own format."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import nncfx
from nncfx import hago
from nncfx.errors import RuntimeFailure
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.runtimes import write_operator_form
from nncfx.targets import Hardware
from onnx_files import run_file


@pytest.fixture
def strategy(graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches) -> hago.Strategy:
    return hago.search_quantize_strategy(graph, vnni, dataset, tuner="default")[0]


def test_the_exported_file_predicts_what_is_simulated(
    graph: hago.QuantGraph,
    vnni: Hardware,
    dataset: LabelledBatches,
    strategy: hago.Strategy,
    tmp_path: Path,
) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    quantizer = hago.create_quantizer(graph, vnni, strategy)
    images = dataset[0][0]
    path = tmp_path / "model.onnx"
    nncfx.export_onnx(quantizer.exportable(), path, images[:1])
    found = run_file(path, images)[0]
    with torch.no_grad():
        expected = quantizer.simulate()(images)
    # both round to 8 bits, the runtime with scales in float32: a few integers differ by one
    assert (torch.from_numpy(found) - expected).abs().max() < 0.05 * expected.abs().max()
    kinds = {one.op_type for one in onnx.load(path).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
    stored = {one.data_type for one in onnx.load(path).graph.initializer}
    assert onnx.TensorProto.INT8 in stored
    fused = write_operator_form(path, tmp_path / "fused.onnx")
    assert "QLinearConv" in {one.op_type for one in onnx.load(fused).graph.node}
    again = run_file(fused, images)[0]
    assert (again == found).all()


def test_integers_are_read_back_as_they_were_written(
    graph: hago.QuantGraph, vnni: Hardware, strategy: hago.Strategy, tmp_path: Path
) -> None:
    quantizer = hago.create_quantizer(graph, vnni, strategy)
    quantized, other = quantizer.quantize(), quantizer.quantize()
    saved = nncfx.storage.save(tmp_path / "model.nncfx", quantized)
    for buffer in other.buffers():
        buffer.zero_()
    nncfx.storage.load(saved.path, other)
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(other(images), quantized(images))


def test_what_stays_in_float_is_in_the_file(sample: Hardware, tmp_path: Path) -> None:
    """The hardware has no linear layers, and a batch norm before the convolution is not folded."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(4 * 6 * 6, 5)
    model = torch.nn.Sequential(
        torch.nn.BatchNorm2d(3), torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), linear
    ).eval()
    model[0].running_mean.normal_()
    images = torch.randn(4, 3, 8, 8)
    graph = hago.prepare_graph(model, images)
    strategy, _ = hago.search_quantize_strategy(
        graph, sample, [(images, torch.zeros(4))], tuner="default"
    )
    quantizer = hago.create_quantizer(graph, sample, strategy)
    quantized, other = quantizer.quantize(), quantizer.quantize()
    stored = list(quantized.state_dict().values())
    for tensor in (linear.weight, linear.bias, model[0].running_mean):
        assert any(torch.equal(tensor, one) and tensor.dtype == one.dtype for one in stored)
    # every tensor of the model once, as integers or as floats
    assert len(stored) == len(model.state_dict())
    saved = nncfx.storage.save(tmp_path / "model.nncfx", quantized)
    for buffer in other.buffers():
        buffer.zero_()
    nncfx.storage.load(saved.path, other)
    assert torch.equal(other(images), quantized(images))


def test_four_bits_take_less_than_half_a_byte(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 64, 3), torch.nn.Conv2d(64, 64, 3))
    inputs = torch.randn(1, 16, 8, 8)
    graph = hago.prepare_graph(model, inputs)
    hardware = nncfx.targets.hardware_named("tensorrt")
    strategy, _ = hago.search_quantize_strategy(
        graph,
        hardware,
        [(inputs, torch.zeros(1))],
        tuner="default",
        settings=hago.QuantizeSettings(evaluate=lambda *_: 1.0),
    )
    few = replace(strategy, bits=tuple(4 for _ in strategy.bits))
    quantized = hago.create_quantizer(graph, hardware, few).quantize()
    weights = 16 * 64 * 9 + 64 * 64 * 9
    contents = nncfx.storage.save(tmp_path / "model.nncfx", quantized)
    assert contents.size_bytes < weights / 2


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(RuntimeFailure, match=r"does not fuse '.*nothing.onnx'"):
        write_operator_form(tmp_path / "nothing.onnx", tmp_path / "fused.onnx")
    assert not list(tmp_path.iterdir())
