"""What integer kernels make of their sums, by hand and against ONNX Runtime's own kernel."""

import platform

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from nncfx.quantization.integer_sums import BatchNorm, Lattice, Sums, added, pooled


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


def runtime_sum(grids: list[tuple[float, int]], x: Tensor, y: Tensor) -> Tensor:
    """Return ONNX Runtime's QLinearAdd of bytes; the last grid is the result's."""
    constants = []
    names = []
    for index, (scale, zero_point) in enumerate(grids):
        names.append((f"s{index}", f"z{index}"))
        constants += [
            onnx.numpy_helper.from_array(np.float32(scale), f"s{index}"),
            onnx.numpy_helper.from_array(np.uint8(zero_point), f"z{index}"),
        ]
    inputs = ["x", *names[0], "y", *names[1], *names[2]]
    node = onnx.helper.make_node("QLinearAdd", inputs, ["sum"], domain="com.microsoft")
    values = [
        onnx.helper.make_tensor_value_info(one, onnx.TensorProto.UINT8, list(x.shape))
        for one in ("x", "y", "sum")
    ]
    graph = onnx.helper.make_graph([node], "sum", values[:2], values[2:], constants)
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (result,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
    return torch.from_numpy(result)


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="formula of x86")
def test_a_sum_of_any_two_bytes_is_onnx_runtimes() -> None:
    x = torch.arange(256, dtype=torch.uint8).repeat(256)
    y = torch.arange(256, dtype=torch.uint8).repeat_interleave(256)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        scales = (torch.rand(3, generator=generator) + 0.1).tolist()
        zeros = torch.randint(256, (3,), generator=generator).tolist()
        grids = list(zip(scales, zeros, strict=True))
        expected = runtime_sum(grids, x, y)
        left, right, wanted = (lattice(*one) for one in grids)
        quantized = added(
            (x.double() - zeros[0]) * left.scale,
            left,
            (y.double() - zeros[1]) * right.scale,
            right,
        )
        steps = quantized(wanted.scale, wanted.zero_point) + zeros[2]
        assert torch.equal(steps.clamp(0, 255), expected.float()), grids
