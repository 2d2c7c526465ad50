"""Canaries: small files on which runtimes show the problems that the export works around.

One that fails is good news: the problem is gone in the version that is installed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import openvino as ov
import pytest
from onnx import numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from packaging.version import Version

from nncfx.targets import TARGETS, WORKAROUNDS, Workaround

RNG = np.random.default_rng(0)
Constants = Mapping[str, Any]


def int8(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape).astype(np.int8)


FLOAT = np.float32
GRIDS = {
    "s": FLOAT(0.05),
    "z": np.uint8(128),
    "zero": np.uint8(0),
    "ws": FLOAT(0.01),
    "wz": np.int8(0),
    "lo": FLOAT(0),
    "least": FLOAT(-np.inf),
}
READ = "xq = QuantizeLinear(x, s, z) xd = DequantizeLinear(xq, s, z)"
WEIGHT = "wd = DequantizeLinear(w, ws, wz)"


def written(folder: Path, graph: str, constants: Constants) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    for name, value in {**GRIDS, **constants}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    onnx.checker.check_model(model)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def operators(folder: Path, graph: str, constants: Constants) -> set[str]:
    """Return what ONNX Runtime makes of a graph."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3  # that an optimized file is of one machine
    path = written(folder, graph, constants)
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node}


def run(path: Path, inputs: np.ndarray, options: Mapping[str, Any] | None = None) -> np.ndarray:
    """Return what OpenVINO computes, in its own precision."""
    result: np.ndarray = ov.Core().compile_model(path, "CPU", options or {})(inputs)[0]
    return result


def rounded(values: np.ndarray, scale: float = 0.05) -> np.ndarray:
    """Return the values on a grid of signed bytes."""
    result: np.ndarray = np.clip(np.round(values / scale), -128, 127) * scale
    return result


def is_off(found: np.ndarray, expected: np.ndarray, share: float) -> bool:
    """Return whether they differ by more than a share of the largest, or by NaN."""
    return not np.abs(found - expected).max() < share * np.abs(expected).max()


def clamps_in_float(folder: Path) -> bool:
    def of(bound: float) -> set[str]:
        graph = f"""g (float[1,4,8,8] x) => (float[1,8,6,6] y) {{ {READ} {WEIGHT}
            c = Conv(xd, wd) r = Clip(c, lo, hi)
            q = QuantizeLinear(r, s, zero) y = DequantizeLinear(q, s, zero) }}"""
        return operators(folder, graph, {"w": int8(8, 4, 3, 3), "hi": FLOAT(bound)})

    assert "QLinearConv" in of(20)  # beyond the grid, which ends at 12.75
    return "QLinearConv" not in of(3)


def float_weights_rounded(folder: Path) -> bool:
    graph = f"""g (float[1,4,8,8] x) => (float[1,8,6,6] y) {{ {READ} c = Conv(xd, w)
        q = QuantizeLinear(c, s, z) y = DequantizeLinear(q, s, z) }}"""
    return "QLinearConv" in operators(
        folder, graph, {"w": RNG.normal(size=(8, 4, 3, 3)).astype("f")}
    )


def clamps_taken_for_ends(folder: Path) -> bool:
    def of(clamp: str) -> set[str]:
        graph = f"""g (float[2,16] x) => (float[2,8] y) {{ {READ} {WEIGHT}
            c = Gemm(xd, wd) r = {clamp} y = Exp(r) }}"""
        return operators(folder, graph, {"w": int8(16, 8)})

    assert "QGemm" in of("Max(c, lo)")
    return "QGemm" not in of("Relu(c)")


def results_read_twice(folder: Path) -> bool:
    def of(read: str) -> set[str]:
        graph = f"""g (float[2,16] x) => (float[2,8] y, float[2,8] c) {{ {READ} {WEIGHT}
            c = MatMul(xd, wd) m = Max(c)
            q = QuantizeLinear({read}, s, z) y = DequantizeLinear(q, s, z) }}"""
        return operators(folder, graph, {"w": int8(16, 8)})

    assert "MatMulIntegerToFloat" in of("m")
    return "MatMulIntegerToFloat" not in of("c")


def biases_make_products_flat(folder: Path) -> bool:
    def of(*shape: int) -> set[str]:
        graph = f"""g (float[2,3,16] x) => (float[2,3,8] y) {{ {READ} {WEIGHT}
            c = MatMul(xd, wd) y = Add(c, b) }}"""
        return operators(folder, graph, {"w": int8(16, 8), "b": np.ones(shape, FLOAT)})

    assert "MatMulIntegerToFloat" in of(1, 1, 8)
    return "MatMulIntegerToFloat" not in of(8)


def softmax_table_overflows(folder: Path) -> bool:
    graph = f"""g (float[1,100] x) => (float[1,100] y) {{ {READ} c = Softmax(xd)
        q = QuantizeLinear(c, u, zero) y = DequantizeLinear(q, u, zero) }}"""
    path = written(folder, graph, {"u": FLOAT(1.2 / 100 / 255)})
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.zeros((1, 100), FLOAT)})
    return bool(found.max() < 0.5 / 100)  # 1 / 100 each is right


def cubic_resizes_refused(folder: Path) -> bool:
    def path(read: str) -> Path:
        graph = f"""g (float[1,8,8,8] x) => (float[1,8,4,4] y) {{ {READ} {WEIGHT}
            c = Conv(xd, wd) q = QuantizeLinear(c, s, z) d = DequantizeLinear(q, s, z)
            r = DepthToSpace<blocksize = 1>(d) h = Resize<mode = "cubic">({read}, , half)
            hq = QuantizeLinear(h, s, z) hd = DequantizeLinear(hq, s, z) e = Conv(hd, wd)
            eq = QuantizeLinear(e, s, z) y = DequantizeLinear(eq, s, z) }}"""
        half = np.array([1, 1, 0.5, 0.5], FLOAT)
        return written(folder, graph, {"w": int8(8, 8, 1, 1), "half": half})

    ort.InferenceSession(path("r"), providers=["CPUExecutionProvider"])
    with pytest.raises(Fail, match="'Cubic' mode only supports"):
        ort.InferenceSession(path("d"), providers=["CPUExecutionProvider"])
    return True


def precisions(path: Path, layer: str) -> list[str]:
    """Return in what OpenVINO computes the layers of a kind."""
    compiled = ov.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    facts = [node.get_rt_info() for node in compiled.get_runtime_model().get_ops()]
    kinds = [(one["layerType"].astype(str), one["runtimePrecision"].astype(str)) for one in facts]
    return [precision for kind, precision in kinds if kind == layer]


def strides_moved(folder: Path) -> bool:
    def of(stride: int) -> list[str]:
        size, both = 16 // stride, f"<strides = [{stride}, {stride}]>"
        graph = f"""g (float[1,16,16,16] x) => (float[1,16,{size},{size}] y) {{ {READ} {WEIGHT}
            td = DequantizeLinear(t, ws, wz) vd = DequantizeLinear(v, ws, wz)
            c = Conv<pads = [1, 1, 1, 1]>(xd, td) r = Relu(c)
            q = QuantizeLinear(r, s, zero) d = DequantizeLinear(q, s, zero)
            a = Conv{both}(d, wd) b = Conv{both}(d, vd) ar = Relu(a) y = Add(ar, b) }}"""
        one = int8(16, 16, 1, 1)
        weights = {"t": int8(16, 16, 3, 3), "w": one, "v": one}
        return precisions(written(folder, graph, weights), "Convolution")

    assert of(1) == ["u8"] * 3
    return of(2).count("f32") == 2


def padded_with_zero_bytes(folder: Path) -> bool:
    def averages(zero_point: str) -> np.ndarray:
        graph = f"""g (float[1,8,8,8] x) => (float[1,8,8,8] y) {{ {WEIGHT}
            xq = QuantizeLinear(x, s, {zero_point}) xd = DequantizeLinear(xq, s, {zero_point})
            a = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(xd)
            aq = QuantizeLinear(a, s, zero) ad = DequantizeLinear(aq, s, zero)
            y = Conv(ad, wd) }}"""
        path = written(folder, graph, {"w": np.ones((8, 8, 1, 1), np.int8)})
        return run(path, np.ones((1, 8, 8, 8), FLOAT), {"INFERENCE_PRECISION_HINT": "f32"})

    right = 8 * 0.01 * 4 / 9  # at a corner, of which 4 pixels of 9 are there
    assert abs(averages("zero")[0, 0, 0, 0] - right) < 0.01
    return bool(abs(averages("z")[0, 0, 0, 0] - right) > 0.01)


def circular_padding_refused(folder: Path) -> bool:
    graph = """g (float[1,8] x) => (float[1,10] y) { y = Pad<mode = "wrap">(x, sides) }"""
    with pytest.raises(RuntimeError, match="wrap"):
        ov.Core().read_model(written(folder, graph, {"sides": np.array([0, 1, 0, 1])}))
    return True


def decoded_in_each_call(folder: Path) -> bool:
    def kept(decode: str) -> set[str]:
        graph = f"""g (float[1,4,8,8] x) => (float[1,6,8,8] y) {{ {decode}
            y = Conv<kernel_shape = [1, 1]>(x, wd) }}"""
        return operators(folder, graph, {"w": int8(6, 4, 1, 1)})

    assert not {"Cast", "Mul"} & kept("wf = Cast<to = 1>(w) wd = Mul(wf, ws)")
    return "DequantizeLinear" in kept(WEIGHT)


def recurrent_weights_refused(folder: Path) -> bool:
    def path(quantizers: str, read: str) -> Path:
        graph = f"""g (float[5,2,8] x) => (float[5,1,2,6] y) {{ {quantizers}
            wd = DequantizeLinear<axis = 0>(w, gs, gz) w3 = Unsqueeze(wd, first)
            rd = DequantizeLinear<axis = 0>(r, gs, gz) r3 = Unsqueeze(rd, first)
            y, h = GRU<hidden_size = 6, linear_before_reset = 1>({read}, w3, r3) }}"""
        rows = {"gs": np.full(18, 0.01, FLOAT), "gz": np.zeros(18, np.int8)}
        weights = {"w": int8(18, 8), "r": int8(18, 6), "first": np.array([0])}
        return written(folder, graph, {**rows, **weights})

    ov.Core().compile_model(path("", "x"), "CPU")
    with pytest.raises(RuntimeError, match="expects Constant"):
        ov.Core().compile_model(path(READ, "xd"), "CPU")
    return True


def joined_tokens_refused(folder: Path) -> bool:
    def path(joined: str) -> Path:
        graph = f"""g (float[2,2,8] x, float[2,3,8] y) => (float[2,5,8] o) {{ {joined}
            q = QuantizeLinear(c, s, z) d = DequantizeLinear(q, s, z)
            wd = DequantizeLinear(w, ws, wz) o = MatMul(d, wd) }}"""
        return written(folder, graph, {"w": int8(8, 8)})

    ov.Core().compile_model(path("e = Concat<axis = 1>(x, y) c = Max(e, least)"), "CPU")
    with pytest.raises(RuntimeError, match="MatMulTransformation"):
        ov.Core().compile_model(path("c = Concat<axis = 1>(x, y)"), "CPU")
    return True


def rounded_extremes_wrong(folder: Path) -> bool:
    def found(greatest: str) -> np.ndarray:
        graph = f"""g (float[2,5,8] x) => (float[2,8] o) {{ {greatest}
            q = QuantizeLinear(m, s, z) o = DequantizeLinear(q, s, z) }}"""
        path = written(folder, graph, {"axis": np.array([1])})
        return run(path, values)

    values = RNG.normal(size=(2, 5, 8)).astype(FLOAT)
    reduced = "ReduceMax<keepdims = 0>(y, axis)"
    apart = found(f"y = Sigmoid(x) e = {reduced} m = Max(e, least)")
    expected = np.round(1 / (1 + np.exp(-values.max(1))) / 0.05) * 0.05
    assert np.abs(apart - expected).max() < 0.06
    return bool(np.abs(found(f"y = Sigmoid(x) m = {reduced}") - expected).max() > 0.2)


def flat_products_unwritten(folder: Path) -> bool:
    def found(first: str) -> np.ndarray:
        graph = f"""g (float[8,16] x) => (float[8,16] o) {{ {READ}
            wd = DequantizeLinear(w, ws, wz) {first}
            q = QuantizeLinear(h, hs, z) d = DequantizeLinear(q, hs, z)
            vd = DequantizeLinear(v, ws, wz) o = MatMul(d, vd) }}"""
        constants = {"w": weights[0], "v": weights[1], "hs": FLOAT(0.2)}
        return run(written(folder, graph, constants), x)

    x, weights = RNG.normal(size=(8, 16)).astype(FLOAT), (int8(16, 48), int8(48, 16))
    steps = rounded(x)
    hidden = rounded(steps @ (weights[0] * 0.01), 0.2)
    expected = hidden @ (weights[1] * 0.01)
    apart = found("m = MatMul(xd, wd) h = Max(m, least)")
    assert not is_off(apart, expected, 0.05)
    return is_off(found("h = MatMul(xd, wd)"), expected, 0.2)


def memories_unwritten(folder: Path) -> bool:
    def found(weight: str) -> np.ndarray:
        graph = f"""g (float[2,7,16] x) => (float[2,7,16] o) {{ {READ} {WEIGHT} {weight}
            h = MatMul(xd, wd) m = Softmax(h) q = QuantizeLinear(m, u, zero)
            d = DequantizeLinear(q, u, zero) o = MatMul(d, r) }}"""
        rows = {"v": weights[1], "vs": scales, "vz": np.zeros(48, np.int8)}
        constants = {"w": weights[0], "u": FLOAT(1 / 255)}
        return run(written(folder, graph, {**rows, **constants}), x)

    x, weights = RNG.normal(size=(2, 7, 16)).astype(FLOAT), (int8(16, 48), int8(48, 16))
    steps = rounded(x)
    scales = RNG.uniform(0.005, 0.02, 48).astype(FLOAT)
    shares = np.exp(steps @ (weights[0] * 0.01))
    shares = np.round(shares / shares.sum(-1, keepdims=True) * 255) / 255
    expected = shares @ (weights[1] * scales[:, None])
    decoded = "DequantizeLinear<axis = 0>(v, vs, vz)"
    apart = found(f"vd = {decoded} r = Max(vd, least)")
    assert not is_off(apart, expected, 0.05)
    return is_off(found(f"r = {decoded}"), expected, 0.2)


def layers_of_constants_refused(folder: Path) -> bool:
    def path(weight: str) -> Path:
        graph = f"""g (float[5,8] x) => (float[5,8] o) {{ {weight}
            c = Gemm<transB = 1>(p, r) o = Add(x, c) }}"""
        rows = {"vs": RNG.uniform(1, 2, 8).astype(FLOAT), "vz": np.zeros(8, np.int8)}
        constants = {"w": int8(8, 16), "p": np.ones((5, 16), FLOAT)}
        return written(folder, graph, {**rows, **constants})

    decoded = "DequantizeLinear<axis = 0>(w, vs, vz)"
    ov.Core().compile_model(path(f"wd = {decoded} r = Max(wd, least)"), "CPU")
    with pytest.raises(RuntimeError, match="is_static"):
        ov.Core().compile_model(path(f"r = {decoded}"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return True


def channels_padded_with_zero_bytes(folder: Path) -> bool:
    def found(padded: str) -> np.ndarray:
        graph = f"""g (float[2,8,6,6] x) => (float[2,4,6,6] o) {{ {READ} {padded}
            q = QuantizeLinear(p, s, z) d = DequantizeLinear(q, s, z)
            wd = DequantizeLinear(w, ws, wz) o = Conv(d, wd) }}"""
        pads = np.array([0, 0, 0, 0, 0, 2, 0, 0])
        constants = {"w": weight, "pads": pads}
        return run(written(folder, graph, constants), x)

    x, weight = RNG.normal(size=(2, 8, 6, 6)).astype(FLOAT), int8(4, 10, 1, 1)
    steps = rounded(x)
    expected = np.einsum("nchw,oc->nohw", steps, weight[:, :8, 0, 0] * 0.01)
    apart = found("e = Max(xd, least) p = Pad(e, pads)")
    assert not is_off(apart, expected, 0.01)
    return is_off(found("p = Pad(xd, pads)"), expected, 0.2)


def biases_of_open_batches_lost(folder: Path) -> bool:
    def found(convolution: str) -> np.ndarray:
        graph = f"""g (float[n,2,6,6] x) => (float[n,m] o) {{ {READ} {convolution}
            q = QuantizeLinear(y, s, z) d = DequantizeLinear(q, s, z) f = Flatten(d)
            count = Shape<start = 0, end = 1>(x) size = Concat<axis = 0>(count, one)
            e = Expand(t, size) o = Concat<axis = 1>(e, f) }}"""
        constants = {"w": weight, "b": bias, "column": bias.reshape(4, 1, 1), "one": np.array([1])}
        constants["t"] = np.array([[1.5]], FLOAT)
        return run(written(folder, graph, constants), x)[:, 1:]

    x, weight = RNG.normal(size=(3, 2, 6, 6)).astype(FLOAT), int8(4, 2, 1, 1)
    bias = np.array([-3, -1, 1, 3], FLOAT)
    steps = rounded(x)
    products = np.einsum("nchw,oc->nohw", steps, weight[:, :, 0, 0] * 0.01) + bias.reshape(4, 1, 1)
    expected = rounded(products).reshape(3, -1)
    apart = found(f"{WEIGHT} p = Conv(xd, wd) y = Add(p, column)")
    assert np.abs(apart - expected).max() < 0.06
    return bool(np.abs(found(f"{WEIGHT} y = Conv(xd, wd, b)") - expected).max() > 0.2)


def shuffled_channels_refused(folder: Path) -> bool:
    def path(joined: str) -> Path:
        graph = f"""g (float[2,4,3,3] x, float[2,4,3,3] y) => (float[2,2,6,6] o) {{ {joined}
            q = QuantizeLinear(c, s, z) d = DequantizeLinear(q, s, z)
            e = DepthToSpace<blocksize = 2, mode = "CRD">(d)
            f = QuantizeLinear(e, s, z) o = DequantizeLinear(f, s, z) }}"""
        return written(folder, graph, {})

    ov.Core().compile_model(path("j = Concat<axis = 1>(x, y) c = Max(j, least)"), "CPU")
    with pytest.raises(RuntimeError, match="DepthToSpaceTransformation"):
        ov.Core().compile_model(path("c = Concat<axis = 1>(x, y)"), "CPU")
    return True


@pytest.mark.parametrize("workaround", WORKAROUNDS, ids=lambda one: one.name)
def test_the_runtime_still_has_the_problem(workaround: Workaround, tmp_path: Path) -> None:
    canary = globals()[workaround.name]
    installed = {"onnxruntime": ort.__version__, "openvino": ov.__version__.split("-")[0]}
    version = Version(installed[workaround.runtime])
    is_fixed = workaround.fixed_in is not None and version >= Version(workaround.fixed_in)
    assert canary(tmp_path) is not is_fixed, (
        f"{workaround.runtime} {version} differs from what is written of '{workaround.name}': "
        "see nncfx/targets/workarounds.py"
    )


def test_each_problem_has_a_source_and_a_target_that_wants_its_pass() -> None:
    wanted = {name for target in TARGETS.values() for name in target.workarounds}
    assert {one.applied_by for one in WORKAROUNDS} == wanted
    assert all(one.link.startswith("https://github.com/") for one in WORKAROUNDS)
