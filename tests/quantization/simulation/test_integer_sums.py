"""What integer kernels make of their sums, by hand and against ONNX Runtime's own kernel."""

import platform
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nncfx.quantization.simulation.float_kernels import average_pooled
from nncfx.quantization.simulation.integer_sums import (
    BatchNorm,
    Lattice,
    Pending,
    Sums,
    added,
    multiplied,
    pooled,
)


def lattice(scale: float, zero_point: int) -> Lattice:
    return Lattice(
        scale=torch.tensor(scale), zero_point=torch.tensor(zero_point), axis=None, bits=8
    )


def sums(total: list[float], bias: list[float] | None, weight_scale: list[float]) -> Sums:
    return Sums(
        total=torch.tensor([total], dtype=torch.float64),
        input_scale=torch.tensor(0.5),
        weight_scale=torch.tensor(weight_scale),
        bias=None if bias is None else torch.tensor(bias),
        axis=1,
    )


def test_a_bias_is_rounded_to_a_whole_number_of_products() -> None:
    # the products are 0.5 * 0.25 and 0.5 * 0.5: 0.7 is 5.6 of the first, 0.6 is 2.4 of the second
    assert sums([10, 10], [0.7, 0.6], [0.25, 0.5]).whole().tolist() == [[16, 12]]


def test_sums_are_scaled_once_and_rounded_half_to_even() -> None:
    # a product is 0.125, a step 0.25: 5 and 7 products are 2.5 and 3.5 steps
    steps = sums([5, 7, -5], None, [0.25]).quantized(torch.tensor(0.25), torch.tensor(0))
    assert steps.tolist() == [[2, 4, -2]]


def test_a_batch_norm_turns_signs_and_scales_and_never_the_integers() -> None:
    norm = BatchNorm(
        mean=torch.tensor([1.0, 1.0, 1.0]),
        variance=torch.tensor([4.0, 4.0, 4.0]),
        weight=torch.tensor([2.0, -4.0, 0.0]),
        bias=torch.tensor([0.5, 0.5, 0.5]),
        epsilon=0.0,
    )
    normed = sums([8, 8, 8], None, [0.25]).normed(norm)
    # factors 1, -2 and 0; biases -1 * factor + 0.5
    assert normed.total.tolist() == [[8, -8, 0]]
    assert normed.weight_scale.tolist() == [0.25, 0.5, 1.0]
    assert normed.bias is not None
    assert normed.bias.tolist() == [-0.5, 2.5, 0.5]
    # 8 * 0.125 - 0.5; -8 * 0.25 + 2.5; 0.5
    assert normed.values().tolist() == [[0.5, 0.5, 0.5]]


def test_a_mean_is_of_the_integers() -> None:
    steps = pooled(torch.tensor([10.0, 14.0]).double(), 4, torch.tensor(0.5))
    # 2.5 and 3.5 steps of 0.5, on a grid of the same step: half to even
    assert steps(torch.tensor(0.5), torch.tensor(0)).tolist() == [2, 4]


def runtime_result(
    kind: str, grids: list[tuple[float, int]], tensors: list[Tensor], **attributes: object
) -> Tensor:
    """Return what an operator of ONNX Runtime makes of bytes; the last grid is the result's."""
    constants, pairs = [], []
    for index, (scale, zero_point) in enumerate(grids):
        pairs.append((f"s{index}", f"z{index}"))
        constants += [
            onnx.numpy_helper.from_array(np.float32(scale), f"s{index}"),
            onnx.numpy_helper.from_array(np.uint8(zero_point), f"z{index}"),
        ]
    names = [f"x{index}" for index in range(len(tensors))]
    inputs = [one for name, pair in zip(names, pairs, strict=False) for one in (name, *pair)]
    node = onnx.helper.make_node(
        kind, [*inputs, *pairs[-1]], ["result"], domain="com.microsoft", **attributes
    )
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, list(one.shape))
        for name, one in zip(names, tensors, strict=True)
    ]
    results = [onnx.helper.make_tensor_value_info("result", onnx.TensorProto.UINT8, None)]
    graph = onnx.helper.make_graph([node], "bytes", values, results, constants)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    fed = zip(names, tensors, strict=True)
    (result,) = session.run(None, {name: one.numpy() for name, one in fed})
    return torch.from_numpy(result)


def random_grids(count: int) -> list[list[tuple[float, int]]]:
    """Return 20 times as many grids; every other time steps that let many results be ties."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for index in range(20):
        scales = torch.rand(count, generator=generator) + 0.1
        if index % 2:
            scales = torch.exp2(torch.round(scales * -4))
        zeros = torch.randint(256, (count,), generator=generator)
        found.append(list(zip(scales.tolist(), zeros.tolist(), strict=True)))
    return found


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="formulas of x86")
@pytest.mark.parametrize(("kind", "make"), [("QLinearAdd", added), ("QLinearMul", multiplied)])
def test_the_sum_and_the_product_of_any_two_bytes_are_onnx_runtimes(
    kind: str, make: Callable[[Tensor, Lattice, Tensor, Lattice], Pending]
) -> None:
    x = torch.arange(256, dtype=torch.uint8).repeat(256)
    y = torch.arange(256, dtype=torch.uint8).repeat_interleave(256)
    for grids in random_grids(3):
        left, right, wanted = (lattice(*one) for one in grids)
        if kind == "QLinearMul":  # of the size of a product
            wanted = lattice(float(left.scale * right.scale * 128), grids[2][1])
            grids[2] = (float(wanted.scale), grids[2][1])
        quantized = make(
            (x.double() - grids[0][1]) * left.scale,
            left,
            (y.double() - grids[1][1]) * right.scale,
            right,
        )
        steps = quantized(wanted.scale, wanted.zero_point) + wanted.zero_point
        expected = runtime_result(kind, grids, [x, y])
        assert torch.equal(steps.clamp(0, 255), expected.float()), grids


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="formulas of x86")
@pytest.mark.parametrize("size", [2, 3])
def test_means_of_windows_of_bytes_are_onnx_runtimes(size: int) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(256, (1, 16, 24, 24), dtype=torch.uint8, generator=generator)
    for grids in random_grids(2):
        (of_x, zero_of_x), (scale, zero_point) = grids
        mean = F.avg_pool2d((x.float() - zero_of_x) * torch.tensor(of_x), size)
        wanted = lattice(scale, zero_point)
        steps = average_pooled(mean)(wanted.scale, wanted.zero_point) + zero_point
        window = {"kernel_shape": [size, size], "strides": [size, size]}
        expected = runtime_result("QLinearAveragePool", grids, [x], **window)
        assert torch.equal(steps.clamp(0, 255), expected.float()), grids
