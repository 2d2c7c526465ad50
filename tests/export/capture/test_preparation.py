"""Modules of unusual make, exported with all their hooks."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, fx, nn

import nncfx
from nncfx.errors import ExportError
from nncfx.export import export_program
from onnx_files import assert_file_agrees, run_file

X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Calling(nn.Module):
    """Layers, and functions between them that its own forward calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 64).view(8, 8))
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        pooled = (y + self.second(y)).mean((2, 3))
        result: Tensor = self.last(nn.functional.linear(pooled, self.scale))
        return result


class Collecting(nn.Module):
    """Takes any number of positional inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Calling()

    def forward(self, *images: Tensor) -> Tensor:
        result: Tensor = self.layer(images[0]) + self.layer(images[1])
        return result


def quantized(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for one in model.parameters():
        nn.init.normal_(one, std=0.3)
    return nncfx.quantize(model.eval(), [X], target="onnxruntime_avx2")


def test_a_module_made_by_fx_becomes_the_file_of_the_module_it_was_made_from(
    tmp_path: Path,
) -> None:
    model, graph = Calling(), fx.symbolic_trace(Calling())
    outputs = []
    for name, one in (("model", model), ("graph", graph)):
        file = nncfx.export_onnx(quantized(one), tmp_path / f"{name}.onnx", X, "onnxruntime_avx2")
        session = onnxruntime.InferenceSession(file.path, providers=["CPUExecutionProvider"])
        outputs.append(session.run(None, {file.inputs[0]: X.numpy()})[0])
    np.testing.assert_array_equal(outputs[1], outputs[0])


def test_a_module_made_by_fx_becomes_the_program_of_the_module_it_was_made_from() -> None:
    programs = [
        export_program(quantized(one), X) for one in (Calling(), fx.symbolic_trace(Calling()))
    ]
    calls = [[str(node.target) for node in one.graph.nodes] for one in programs]
    assert calls[1].count("quantized_decomposed.quantize_per_tensor.default") == calls[0].count(
        "quantized_decomposed.quantize_per_tensor.default"
    )
    assert torch.equal(programs[1].module()(X), programs[0].module()(X))


def test_a_module_made_by_fx_is_itself_after_its_export(tmp_path: Path) -> None:
    model = quantized(fx.symbolic_trace(Calling()))
    before = model(X)
    nncfx.export_onnx(model, tmp_path / "x.onnx", X, "onnxruntime_avx2")
    assert isinstance(model, fx.GraphModule)
    assert torch.equal(model(X), before)


class Counting(nn.Module):
    """Counts its calls in a buffer, and keeps its last result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.last = self.layer(x)
        return self.last * self.count


def test_state_is_left_as_it_was_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Counting()
    x = torch.ones(3, 4)
    file = nncfx.export_onnx(model, tmp_path / "x.onnx", x)
    assert int(model.count) == 0
    assert model.last is None
    assert "The forward changes 'count', and a file keeps no state" in caplog.text
    session = onnxruntime.InferenceSession(file.path, providers=["CPUExecutionProvider"])
    expected = model.layer(x)
    for _ in range(2):
        (found,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), expected)


def test_a_quantized_model_is_not_exported_under_autocast(tmp_path: Path) -> None:
    model = quantized(Calling())
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ExportError, match=r"autocast is on.*torch.bfloat16.*Export outside"),
    ):
        nncfx.export_onnx(model, tmp_path / "x.onnx", X)


def test_each_of_any_number_of_inputs_has_an_open_batch(tmp_path: Path) -> None:
    model = Collecting().eval()
    file = nncfx.export_onnx(model, tmp_path / "x.onnx", (X, X + 1))
    session = onnxruntime.InferenceSession(file.path, providers=["CPUExecutionProvider"])
    one = X[:1]
    (got,) = session.run(None, dict(zip(file.inputs, (one.numpy(), one.numpy() + 1), strict=True)))
    torch.testing.assert_close(torch.from_numpy(got), model(one, one + 1))


@pytest.mark.parametrize("algorithm", ["const_sparsity", "nm_sparsity", "rb_sparsity"])
def test_masks_of_large_weights_are_in_the_weights_of_the_file(
    algorithm: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, 512)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4))
    model[0].weight.data[:, ::2] = 0
    items = [{"algorithm": algorithm}, {"algorithm": "quantization"}]
    _, model = nncfx.create_compressed_model(
        model, {"compression": items}, inputs, calibration_batches=[inputs]
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    file = nncfx.export_onnx(model.eval(), tmp_path / "masked.onnx", inputs).path
    (found,) = run_file(file, inputs)
    step = np.abs(found).max() / 127
    assert np.abs(found - model(inputs).detach().numpy()).max() < 1.01 * step
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_only_looks_on_keeps_no_other_hook_in_the_file(tmp_path: Path) -> None:
    algorithms = [
        {"algorithm": "weight_clustering"},
        {"algorithm": "knowledge_distillation", "type": "softmax"},
    ]
    torch.manual_seed(0)
    controller, model = nncfx.create_compressed_model(Calling(), {"compression": algorithms}, X)
    controller.scheduler.epoch_step()
    file = nncfx.export_onnx(model.eval(), tmp_path / "clustered.onnx", X)
    assert_file_agrees(file, model, X, atol=1e-5, rtol=0)
