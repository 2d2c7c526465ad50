"""Engines of TensorRT for RTX, built without a GPU; what runs needs one."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from nncfx.errors import MissingExtraError, RuntimeFailure
from nncfx.export import ExportResult, export_onnx
from nncfx.runtimes import BuildOptions, runtime_named
from nncfx.runtimes.backends.tensorrt_runtime import TensorRtSession

pytest.importorskip("tensorrt_rtx_bindings", reason="tensorrt-rtx-cu13-bindings is not installed")

ADA = ("computeCapability", "8.9")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="running an engine needs an NVIDIA GPU"
)


def built(
    path: os.PathLike[str], *settings: tuple[str, str], cache: Path | None = None
) -> TensorRtSession:
    options = BuildOptions(settings=(ADA, *settings), cache=cache)
    return runtime_named("tensorrt_rtx").build(path, options)


@pytest.fixture(scope="module")
def int8(
    exported: ExportResult, inputs: torch.Tensor, in_int8: Callable[[Path, torch.Tensor], Path]
) -> Path:
    return in_int8(exported.path, inputs)


def test_an_engine_is_built_for_a_gpu_that_is_not_here(exported: ExportResult) -> None:
    session = built(exported)
    assert session.facts.compute_capability == "SM89"
    assert len(session.serialized) == session.facts.size_bytes > 1000


@pytest.mark.parametrize("capability", ["8.0", "8.6", "12.0", "12.1"])
def test_each_compute_capability_builds(exported: ExportResult, capability: str) -> None:
    options = BuildOptions(settings=(("computeCapability", capability),))
    session = runtime_named("tensorrt_rtx").build(exported, options)
    assert session.facts.compute_capability == f"SM{capability.replace('.', '')}"


def test_without_a_gpu_one_must_be_named(exported: ExportResult) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(RuntimeFailure, match=r"no GPU here .* Name the one"):
        runtime_named("tensorrt_rtx").build(exported, BuildOptions())


def test_an_unknown_gpu_is_refused(exported: ExportResult) -> None:
    with pytest.raises(RuntimeFailure, match="builds for no compute capability 'SM88'"):
        runtime_named("tensorrt_rtx").build(
            exported, BuildOptions(settings=(("computeCapability", "8.8"),))
        )


def test_a_gpu_that_it_has_no_kernels_for_is_refused_before_it_builds(
    exported: ExportResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    said = r"capability 9.0, which NVIDIA H200 has; it knows SM75.* Use TensorRT"
    with pytest.raises(RuntimeFailure, match=said):
        runtime_named("tensorrt_rtx").build(exported, BuildOptions())


def test_what_a_gpu_cannot_compute_is_refused(exported: ExportResult) -> None:
    options = BuildOptions(settings=(("computeCapability", "7.5"),))
    with pytest.raises(RuntimeFailure, match=r"cannot build .* for SM75: .*FP32 GEMM"):
        runtime_named("tensorrt_rtx").build(exported, options)


def test_the_signature_is_the_models(exported: ExportResult) -> None:
    (spec,) = built(exported).inputs
    assert (spec.name, spec.shape, spec.dtype) == ("input", (None, 3, 8, 8), "float32")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_of_16_bits_makes_a_smaller_engine(dtype: torch.dtype, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 256, 3), nn.ReLU(), nn.Conv2d(256, 256, 3))
    inputs = torch.ones(1, 3, 16, 16)
    sizes = []
    for kind in (torch.float32, dtype):
        path = tmp_path / f"{len(sizes)}.onnx"
        # ONNX knows convolutions of bfloat16 from operator set 22 on.
        export_onnx(
            model.to(kind), path, inputs.to(kind), dynamic_batch=False, opset=22, target="tensorrt"
        )
        sizes.append(built(path).facts.size_bytes)
    assert sizes[1] < 0.75 * sizes[0]


def test_pairs_of_q_and_dq_become_int8_layers(int8: Path) -> None:
    quantized = built(int8, ("int8", "all")).facts.quantized
    assert (len(quantized.int8), quantized.half, quantized.floating) == (3, (), ())


def test_a_floating_model_is_no_int8_model(exported: ExportResult) -> None:
    with pytest.raises(RuntimeFailure, match="wants every convolution and matrix product"):
        built(exported, ("int8", "all"))


def test_a_layer_that_lost_the_pair_of_its_weight_is_refused(int8: Path, tmp_path: Path) -> None:
    model = onnx.load(int8)
    conv = [node for node in model.graph.node if node.op_type == "Conv"][1]
    maker = next(node for node in model.graph.node if conv.input[1] in node.output)
    integers = next(one for one in model.graph.initializer if one.name == maker.input[0])
    floats = onnx.numpy_helper.to_array(integers).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(floats, "plain"))
    conv.input[1] = "plain"
    onnx.save(model, tmp_path / "half.onnx")
    with pytest.raises(RuntimeFailure, match="read a Q/DQ pair at one factor only"):
        built(tmp_path / "half.onnx")
    assert len(built(tmp_path / "half.onnx", ("int8", "any")).facts.quantized.half) == 1


def test_shapes_of_an_unknown_input_are_refused(exported: ExportResult) -> None:
    with pytest.raises(RuntimeFailure, match="names input 'x', which the model does not have"):
        built(exported, ("optShapes", "x:1x3x8x8"))


def test_an_engine_is_kept(exported: ExportResult, tmp_path: Path) -> None:
    first, second = (built(exported, cache=tmp_path) for _ in range(2))
    assert (first.facts.was_kept, second.facts.was_kept) == (False, True)
    assert first.serialized == second.serialized


def test_a_kept_engine_is_for_one_gpu(exported: ExportResult, tmp_path: Path) -> None:
    built(exported, cache=tmp_path)
    options = BuildOptions(settings=(("computeCapability", "8.6"),), cache=tmp_path)
    other = runtime_named("tensorrt_rtx").build(exported, options)
    assert not other.facts.was_kept


def test_a_file_that_is_no_onnx_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"no graph")
    with pytest.raises(RuntimeFailure, match=r"tensorrt_rtx .* refuses") as caught:
        built(tmp_path / "a.onnx")
    assert "\n" not in str(caught.value)


def test_an_operator_that_tensorrt_has_not_is_named(tmp_path: Path) -> None:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4]) for n in "xy")
    node = onnx.helper.make_node("Nonsense", ["x"], ["y"], domain="made.up")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "a.onnx")
    with pytest.raises(RuntimeFailure, match="Nonsense"):
        built(tmp_path / "a.onnx")


def test_running_without_a_gpu_says_what_to_do(exported: ExportResult) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    session = built(exported)
    for use in (lambda: session.run(torch.ones(1, 3, 8, 8)), session.inspect):
        with pytest.raises(RuntimeFailure, match=r"needs an NVIDIA GPU.* take it to the GPU"):
            use()


def test_tensorrt_itself_says_which_extra_to_install() -> None:
    try:
        version = runtime_named("tensorrt").version()
    except MissingExtraError as error:
        assert "nncfx[tensorrt]" in str(error)  # noqa: PT017 (installed or not, both are right)
    else:
        assert version


@pytest.mark.gpu
@needs_gpu
def test_outputs_on_the_gpu_are_the_models(
    model: nn.Module, exported: ExportResult, inputs: torch.Tensor
) -> None:
    with runtime_named("tensorrt_rtx").build(exported, BuildOptions(profile=True)) as session:
        (output,) = session.run(inputs)
        assert "Layers" in session.inspect()
    # TF32 keeps 10 bits of mantissa.
    torch.testing.assert_close(
        torch.from_numpy(output), model(inputs).detach(), rtol=5e-3, atol=5e-3
    )
