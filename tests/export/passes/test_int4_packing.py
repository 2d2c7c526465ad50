"""Weights of four bits, two in a byte of the file."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import nncfx
from nncfx.quantization import integer_arithmetic, quantize
from nncfx.runtimes import BuildOptions, integer_kernels, runtime_named


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 48, 3), nn.ReLU(), nn.Conv2d(48, 48, 3), nn.ReLU(), nn.Flatten()),
        nn.Linear(48 * 16, 10),
    ).eval()


def images() -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def exported(folder: Path, bits: int, target: str = "onnxruntime") -> tuple[nn.Module, Path, int]:
    model = quantize(network(), [images()], preset="fast", weight_bits=bits, target=target)
    file = nncfx.export_onnx(model, folder / f"{bits}.onnx", images(), target=target)
    return model, Path(file.path), file.size_bytes


def stored_types(file: Path) -> set[int]:
    return {one.data_type for one in onnx.load(file).graph.initializer}


def test_the_file_has_half_of_the_bytes_and_runs_in_the_same_integers(tmp_path: Path) -> None:
    _, _, whole = exported(tmp_path, 8)
    model, file, half = exported(tmp_path, 4)
    assert half < 0.65 * whole  # the rest are the nodes of a small network
    assert onnx.TensorProto.INT4 in stored_types(file)
    kernels = integer_kernels(file, images())
    assert (len(kernels.integer), kernels.float) == (3, ())
    with torch.no_grad(), integer_arithmetic(model):
        expected = model(images())
    with runtime_named("onnxruntime").build(file, BuildOptions(threads=1)) as session:
        (found,) = session.run(images())
    assert torch.equal(torch.from_numpy(found), expected)


@pytest.mark.parametrize(("bits", "target"), [(5, "onnxruntime"), (4, "openvino")])
def test_wider_ones_and_those_for_other_runtimes_stay_bytes(
    bits: int, target: str, tmp_path: Path
) -> None:
    _, file, _ = exported(tmp_path, bits, target)
    assert onnx.TensorProto.INT4 not in stored_types(file)
