"""Models of 16-bit floats: what their files compute, and in which types."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import nncfx
from language_models import bert
from nncfx.export import export_onnx
from nncfx.quantization import quantize_weights
from nncfx.runtimes import BuildOptions, runtime_named
from onnx_files import run_file

HALVES = [torch.float16, torch.bfloat16]
X = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Casting(nn.Module):
    """A network that names its own types, norms in float32 and adds a constant."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 32)
        self.register_buffer("shift", torch.linspace(-1, 1, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x.to(self.dtype))))
        x = (torch.relu(self.body(x)) + x).float().mean((2, 3)).to(self.dtype)
        return self.head(x) + self.shift + torch.full((32,), 0.5, dtype=self.dtype)


def network(dtype: torch.dtype) -> Casting:
    torch.manual_seed(0)
    return Casting(dtype).eval().to(dtype)


def widened(model: nn.Module) -> nn.Module:
    """Return a copy that computes in float32 with the same numbers: what a file should compute."""
    model = copy.deepcopy(model).float()
    for one in model.modules():
        if isinstance(one, Casting):
            one.dtype = torch.float32
    return model


MAKERS: dict[str, Callable[[nn.Module, torch.Tensor], nn.Module]] = {
    "plain": lambda model, _: model,
    "int8": lambda model, x: nncfx.quantize(model, [x]),
    "weights of 4 bits": lambda model, x: quantize_weights(model, [x], bits=4, group_size=8),
}


@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", MAKERS)
def test_the_file_computes_in_float32_with_the_numbers_of_the_model(
    kind: str, dtype: torch.dtype, target: str, tmp_path: Path
) -> None:
    if kind == "plain" and dtype == torch.float16:
        pytest.skip("such a file stays in float16")
    model = MAKERS[kind](network(dtype), X.to(dtype))
    file = export_onnx(model, tmp_path / "m.onnx", X.to(dtype), target)
    with runtime_named("onnxruntime").build(file, BuildOptions(threads=1)) as session:
        (found,) = session.run(X)
        (again,) = session.run(X.to(dtype))  # widened by the session
    with torch.no_grad():
        exact, narrow = widened(model)(X), model(X.to(dtype)).float()
    peak = float(exact.abs().max())
    # 1e-5 for sums in another order; a value half way between two of 255 integers may fall to
    # either side, once in a mean of 64 pixels; ONNX Runtime multiplies 4 bits by bytes of inputs
    allowed = peak * {"plain": 1e-5, "int8": 1 / 64, "weights of 4 bits": 1 / 127}[kind]
    assert float((torch.from_numpy(found) - exact).abs().max()) < allowed
    # the model itself rounds to the type after each of about 8 operations
    for output in (found, again):
        error = float((torch.from_numpy(output) - narrow).abs().max())
        assert error < 8 * torch.finfo(dtype).eps * peak + allowed


@pytest.mark.parametrize("dtype", HALVES)
def test_integers_are_those_of_the_same_model_in_float32(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    model = nncfx.quantize(network(dtype), [X.to(dtype)])
    files = {
        "narrow": export_onnx(model, tmp_path / "narrow.onnx", X.to(dtype)),
        "wide": export_onnx(widened(model), tmp_path / "wide.onnx", X),
    }
    read = {name: onnx.load(file.path).graph for name, file in files.items()}
    integers = {
        name: sorted(
            onnx.numpy_helper.to_array(one).tobytes()
            for one in graph.initializer
            if one.data_type == onnx.TensorProto.INT8
        )
        for name, graph in read.items()
    }
    assert len(integers["wide"]) >= 3
    assert integers["narrow"] == integers["wide"]


def test_float16_alone_stays_float16(tmp_path: Path) -> None:
    file = export_onnx(network(torch.float16), tmp_path / "m.onnx", X.half())
    with runtime_named("onnxruntime").build(file, BuildOptions()) as session:
        assert [one.dtype for one in session.inputs] == ["float16"]


@pytest.mark.parametrize("dtype", HALVES)
def test_for_tensorrt_the_types_are_the_models(dtype: torch.dtype, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).to(dtype)
    file = export_onnx(model, tmp_path / "m.onnx", torch.ones(2, 8, dtype=dtype), "tensorrt")
    (given,) = onnx.load(file.path).graph.input
    kinds = {torch.float16: onnx.TensorProto.FLOAT16, torch.bfloat16: onnx.TensorProto.BFLOAT16}
    assert given.type.tensor_type.elem_type == kinds[dtype]


def test_it_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        export_onnx(network(torch.bfloat16), tmp_path / "m.onnx", X.bfloat16())
    assert "computes in bfloat16" in caplog.text
    assert "inputs and outputs in float32" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "int8"])
def test_a_transformer_in_bfloat16_with_a_mask_runs(kind: str, tmp_path: Path) -> None:
    """Its mask adds the least number of bfloat16, which float32 has as well."""
    model = bert(hidden_size=32, intermediate_size=64, num_hidden_layers=1).bfloat16()
    ids, mask = torch.randint(0, 50, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[0, 8:] = 0
    x = {"input_ids": ids, "attention_mask": mask}
    if kind == "int8":
        model = nncfx.quantize(model, [x])
    file = export_onnx(model, tmp_path / "m.onnx", x)
    found = torch.from_numpy(run_file(file, x)[0])
    with torch.no_grad():
        expected = model(**x).last_hidden_state.float()
    # some 10 operations in a row round to bfloat16
    allowed = 10 * torch.finfo(torch.bfloat16).eps * float(expected.abs().max())
    assert float((found - expected).abs().max()) < allowed
