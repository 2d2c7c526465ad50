"""Tests of writing ONNX files."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from nncfx.errors import ExportError
from nncfx.export.ir import onnx_writer
from nncfx.export.ir.onnx_writer import write_onnx

WEIGHT = np.random.default_rng(0).standard_normal(1000).astype(np.float32)


def model_of(tensor: ir.TensorProtocol, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Model:
    """Return a model that adds `tensor` to its input."""
    weight = ir.Value(
        name="weight", shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    x = ir.val("x", dtype, tensor.shape)
    node = ir.node("Add", [x, weight])
    (y,) = node.outputs
    y.name, y.type, y.shape = "y", ir.TensorType(dtype), tensor.shape
    graph = ir.Graph(
        [x], [y], nodes=[node], initializers=[weight], opset_imports={"": 21}, name="main"
    )
    return ir.Model(graph, ir_version=10)


@pytest.mark.parametrize(
    ("limit", "files"), [(10_000, ["m.onnx"]), (1000, ["m.onnx", "m.onnx.data"])]
)
def test_weights_lie_beside_the_file_from_a_size_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, files: list[str]
) -> None:
    monkeypatch.setattr(onnx_writer, "_ONE_FILE", limit)
    tensor = ir.tensor(WEIGHT, name="weight")
    model = model_of(tensor)
    write_onnx(model, tmp_path / "m.onnx")
    assert sorted(one.name for one in tmp_path.iterdir()) == files
    (read,) = onnx.load(tmp_path / "m.onnx").graph.initializer
    assert np.array_equal(onnx.numpy_helper.to_array(read), WEIGHT)
    assert model.graph.initializers["weight"].const_value is tensor


@pytest.mark.parametrize("limit", [1000, 10_000])
def test_a_graph_that_is_not_valid_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(onnx_writer, "_ONE_FILE", limit)
    model = model_of(ir.tensor(WEIGHT, name="weight"), dtype=ir.DataType.INT64)
    with pytest.raises(ExportError, match="not valid ONNX"):
        write_onnx(model, tmp_path / "m.onnx")
