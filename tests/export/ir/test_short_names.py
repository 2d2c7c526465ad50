"""Names that users look for are kept; all others are a letter or two."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import nncfx
from nncfx.export import export_onnx

IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> onnx.GraphProto:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
    model = nncfx.quantize(nn.Sequential(*layers).eval(), [IMAGE])
    path = export_onnx(model, tmp_path_factory.mktemp("short") / "m.onnx", IMAGE).path
    return onnx.load(path).graph


def test_weights_have_the_names_of_the_state_dict(graph: onnx.GraphProto) -> None:
    stored = {one.name: one.data_type for one in graph.initializer}
    assert stored["0.weight"] == stored["3.weight"] == onnx.TensorProto.INT8


def test_inputs_and_outputs_keep_their_names(graph: onnx.GraphProto) -> None:
    assert [one.name for one in (*graph.input, *graph.output)] == ["input", "output"]


def test_all_other_values_are_numbered(graph: onnx.GraphProto) -> None:
    computed = {name for node in graph.node for name in node.output} - {"output"}
    of_quantizers = {
        name
        for node in graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
        for name in node.input[1:]
    }
    assert len(computed | of_quantizers) > len(graph.node)
    assert max(map(len, computed | of_quantizers)) <= 2


def test_layers_are_called_by_their_modules_and_quantizers_as_their_outputs(
    graph: onnx.GraphProto,
) -> None:
    names = {node.name: node.output[0] for node in graph.node}
    assert {"0/Conv", "3/Gemm"} <= set(names)
    assert all("/" in name or names[name] == name for name in names)
    assert len(names) == len(graph.node)


def test_a_name_that_the_user_gave_is_not_given_twice(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    names = {"input_names": ["0"], "output_names": ["1"]}
    path = export_onnx(model, tmp_path / "m.onnx", torch.ones(2, 8), **names).path
    graph = onnx.load(path).graph
    every = [name for node in graph.node for name in node.output] + ["0"]
    assert len(set(every)) == len(every)
    onnx.checker.check_model(onnx.load(path), full_check=True)


def test_a_small_network_takes_little_beside_its_weights(tmp_path: Path) -> None:
    from pytorchcv.models.resnet_cifar import resnet20_cifar10  # noqa: PLC0415 (of this test)

    torch.manual_seed(0)
    sizes = {}
    image = torch.randn(2, 3, 32, 32)
    for bits in (8, 4):
        model = resnet20_cifar10().eval()
        quantized = nncfx.quantize(model, [image], weight_bits=bits)
        path = tmp_path / f"{bits}.onnx"
        sizes[bits] = export_onnx(quantized, path, image).size_bytes
        parameters = sum(one.numel() for one in model.parameters())
    assert sizes[8] <= 1.065 * parameters
    assert sizes[4] <= 0.56 * sizes[8]
