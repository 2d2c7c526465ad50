"""A softmax between quantized tensors in ONNX Runtime: by its table of integers, or in float.

The table is `QLinearSoftmax`; float is what files of nncfx say, a softmax with a maximum of one
tensor between it and the quantizer. Inputs are random bytes, "flatness" their step: the smaller,
the more alike are the outputs. "off" is the largest difference from numpy, in steps of the output.

    python benchmarks/softmax_kernels.py
"""

import statistics
import time

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROUNDS = 30
CASES = (
    ((8, 49, 49), 2, 0.02),
    ((8, 197, 197), 2, 0.02),
    ((8, 577, 577), 2, 0.02),
    ((8, 3137, 8), 1, 0.02),
    ((8, 3137, 8), 1, 0.004),
    ((8, 2, 64), 1, 0.004),
)


def softmax(x: npt.NDArray[np.uint8], step: float, axis: int) -> npt.NDArray[np.float32]:
    """Return the softmax of what `x` stands for, with its zero point in the middle."""
    floats = (x.astype(np.float32) - 128) * np.float32(step)
    powers = np.exp(floats - floats.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def session(
    shape: tuple[int, ...], axis: int, steps: tuple[float, float], *, is_apart: bool
) -> onnxruntime.InferenceSession:
    """Return a session that computes bytes from bytes."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_step", "x_zero"], ["floats"]),
        helper.make_node("Softmax", ["floats"], ["softmax"], axis=axis),
        helper.make_node("Max", ["softmax"], ["same"]),
        helper.make_node("QuantizeLinear", ["same", "y_step", "y_zero"], ["y"]),
    ]
    if not is_apart:
        del nodes[2]
        nodes[-1].input[0] = "softmax"
    values = {
        "x_step": np.float32(steps[0]),
        "x_zero": np.uint8(128),
        "y_step": np.float32(steps[1]),
        "y_zero": np.uint8(0),
    }
    tensors = [helper.make_tensor_value_info(one, TensorProto.UINT8, shape) for one in "xy"]
    constants = [numpy_helper.from_array(np.asarray(one), name) for name, one in values.items()]
    graph = helper.make_graph(nodes, "softmax", tensors[:1], tensors[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def main() -> None:
    """Print a table."""
    print(
        "| shape | axis | flatness | table: off | ms | float: off | ms | table / float | spread |"
        f"\n|---|{'---:|' * 8}"
    )
    for shape, axis, step in CASES:
        x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        exact = softmax(x, step, axis)
        grain = float(exact.max() / 255)
        expected = np.clip(np.rint(exact / np.float32(grain)), 0, 255)
        ways = [session(shape, axis, (step, grain), is_apart=one) for one in (False, True)]
        times: list[list[float]] = [[], []]
        off = [np.abs(one.run(None, {"x": x})[0] - expected).max() for one in ways]
        for _ in range(ROUNDS):
            for way, taken in zip(ways, times, strict=True):
                start = time.perf_counter()
                way.run(None, {"x": x})
                taken.append(1e3 * (time.perf_counter() - start))
        table, apart = (statistics.median(one) for one in times)
        ratios = sorted(a / b for a, b in zip(*times, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
        sizes = " x ".join(map(str, shape))
        print(
            f"| {sizes} | {axis} | {step} | {off[0]:.0f} | {table:.3f} | {off[1]:.0f} "
            f"| {apart:.3f} | {statistics.median(ratios):.2f} | {low:.2f} to {high:.2f} |"
        )


if __name__ == "__main__":
    main()
