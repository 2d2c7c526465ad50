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


@pytest.mark.parametrize("limit", [100, 10_000])
@pytest.mark.parametrize("dtype", ["float", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("writeable", [True, False])
def test_transposed_views_are_written_in_order_and_never_entry_by_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, dtype: str, writeable: bool
) -> None:
    monkeypatch.setattr(onnx_writer, "_ONE_FILE", limit)
    written = []
    tofile = ir.Tensor.tofile
    monkeypatch.setattr(
        ir.Tensor, "tofile", lambda self, file: (written.append(self.raw), tofile(self, file))
    )
    kind = getattr(ir.DataType, dtype.upper())
    view = (WEIGHT * 9).reshape(10, 20, 5).astype(kind.numpy()).transpose(2, 0, 1)
    view.flags.writeable = writeable
    tensor = ir.Tensor(view, kind, name="weight")
    model = model_of(tensor, kind)
    write_onnx(model, tmp_path / "m.onnx")
    (read,) = onnx.load(tmp_path / "m.onnx").graph.initializer
    assert read.name == "weight"
    assert np.array_equal(onnx.numpy_helper.to_array(read).astype(np.float32), view)
    assert len(written) == (limit == 100)
    assert all(one.flags.c_contiguous for one in written)
    assert model.graph.initializers["weight"].const_value is tensor


@pytest.mark.parametrize("limit", [1000, 10_000])
def test_a_graph_that_is_not_valid_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(onnx_writer, "_ONE_FILE", limit)
    model = model_of(ir.tensor(WEIGHT, name="weight"), dtype=ir.DataType.INT64)
    with pytest.raises(ExportError, match="not valid ONNX"):
        write_onnx(model, tmp_path / "m.onnx")
