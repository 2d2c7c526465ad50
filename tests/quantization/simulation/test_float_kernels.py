"""The kernels in float are the runtime's, bit by bit."""

import platform
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.quantization.simulation.float_kernels import (
    average_pooled,
    channel_mean,
    hard_sigmoid,
    logistic,
    normalized,
    resized,
)
from nncfx.quantization.simulation.integer_sums import BatchNorm
from onnx_files import run_file
from small_models import Applied

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="the polynomials are those of x86"
)


def executed(model: nn.Module, x: Tensor, folder: Path) -> Tensor:
    path = nncfx.export_onnx(model.eval(), folder / "model.onnx", x, dynamic_batch=False).path
    return torch.as_tensor(run_file(path, x)[0])


@pytest.mark.parametrize(
    ("function", "kernel"),
    [
        (torch.sigmoid, logistic),
        (F.hardsigmoid, hard_sigmoid),
        (F.silu, lambda x: x * logistic(x)),
        (F.hardswish, lambda x: x * hard_sigmoid(x)),
    ],
)
def test_curves_equal_the_runtimes_in_every_bit_and_torchs_do_not(
    tmp_path: Path, function: Callable[[Tensor], Tensor], kernel: Callable[[Tensor], Tensor]
) -> None:
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 6
    expected = executed(Applied(function), x, tmp_path)
    assert torch.equal(kernel(x), expected)
    assert not torch.equal(function(x), expected)


def test_a_batch_norm_behind_no_layer_equals_the_runtimes(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    norm = nn.BatchNorm2d(32).eval()
    mean, variance, weight, bias = torch.randn(4, 32, generator=generator)
    variance = variance.abs() + 0.1
    norm.load_state_dict(
        {"running_mean": mean, "running_var": variance, "weight": weight, "bias": bias},
        strict=False,
    )
    x = torch.randn(2, 32, 9, 9, generator=generator)
    constants = BatchNorm(mean=mean, variance=variance, weight=weight, bias=bias, epsilon=norm.eps)
    expected = executed(norm, x, tmp_path)
    assert torch.equal(normalized(x, constants), expected)
    assert not torch.equal(norm(x), expected)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [1, 3, 64, 66, 67])
def test_means_over_channels_equal_the_runtimes(tmp_path: Path, batch: int, channels: int) -> None:
    x = torch.randn(batch, channels, 7, 7, generator=torch.Generator().manual_seed(0))
    expected = executed(Applied(lambda x: x.mean(1, keepdim=True)), x, tmp_path)
    assert torch.equal(channel_mean(x), expected)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    ("size", "factor"),
    [((13, 31), None), ((5, 4), None), ((1, 1), None), ((9, 22), None), (None, 2.0), (None, 1.7)],
)
def test_resized_images_equal_the_runtimes(
    tmp_path: Path, size: tuple[int, int] | None, factor: float | None, *, align_corners: bool
) -> None:
    def resize(x: Tensor) -> Tensor:
        return F.interpolate(x, size, factor, "bilinear", align_corners)

    x = torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(0))
    expected = executed(Applied(resize), x, tmp_path)
    height, width = expected.shape[2:]
    scales = (height / 9, width / 11) if factor is None else (factor, factor)
    found = resized(x, (height, width), scales, align_corners=align_corners)
    assert torch.equal(found, expected)
    if height > 9 and width > 11:
        assert not torch.equal(resize(x), expected)


@pytest.mark.parametrize("zero", [2, 3])
def test_means_of_windows_round_ties_as_the_runtime(tmp_path: Path, zero: int) -> None:
    pairs = torch.tensor([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], dtype=torch.uint8)
    one, bytes_of = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
    grids = [
        onnx.helper.make_tensor(name, kind, [], [value])
        for name, kind, value in (
            *(("xs", one, 1.0), ("xz", bytes_of, 0)),
            *(("ys", one, 1.0), ("yz", bytes_of, zero)),
        )
    ]
    node = onnx.helper.make_node(
        "QLinearAveragePool",
        ["x", *(grid.name for grid in grids)],
        ["y"],
        domain="com.microsoft",
        kernel_shape=[1, 2],
        strides=[1, 2],
    )
    x, y = (
        onnx.helper.make_tensor_value_info(name, bytes_of, [1, 1, 1, size])
        for name, size in (("x", 10), ("y", 5))
    )
    graph = onnx.helper.make_graph([node], "pooling", [x], [y], grids)
    sets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=sets, ir_version=10), tmp_path / "m.onnx"
    )
    (result,) = run_file(tmp_path / "m.onnx", pairs.view(1, 1, 1, 10))
    means = pairs.float().view(1, 1, 1, 5, 2).mean(-1)  # four ties, and 4
    found = average_pooled(means)(torch.tensor(1.0), torch.tensor(zero))
    assert torch.equal(found, torch.as_tensor(result).float() - zero)
