"""Fake-quantize operations of torch reach the graph as one node each, with a readable grid."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import ExportError
from nncfx.export.ir.fake_quantize import Grid, grid_of, is_fake_quantize, translations
from onnx_files import parsed

QUANTIZED = """
g (float[2,3] x) => (float[2,3] y)
<float s = {%s}, int32 z = {%s}>
{ y = nncfx.FakeQuantize <axis = -1, quant_min = %d, quant_max = %d> (x, s, z) }
"""


def grid(scale: float, zero_point: int, low: int, high: int) -> Grid:
    return Grid(
        scale=np.float32(scale), zero_point=np.int64(zero_point), axis=None, low=low, high=high
    )


def test_grid_holds_what_the_node_says() -> None:
    found = grid_of(parsed(QUANTIZED % ("0.5", "3", 0, 255)).graph[0])
    assert (float(found.scale), int(found.zero_point)) == (0.5, 3)
    assert (found.axis, found.low, found.high) == (None, 0, 255)


def test_a_channel_alone_is_a_tensor() -> None:
    model = parsed(QUANTIZED.replace("-1", "0").replace("s = {", "[1] s = {") % ("0.5", "3", 0, 9))
    assert grid_of(model.graph[0]).axis is None


def test_scale_that_is_computed_is_refused() -> None:
    model = parsed(
        """
        g (float[2] x, float s) => (float[2] y) <int32 z = {0}>
        { y = nncfx.FakeQuantize <axis = -1, quant_min = 0, quant_max = 255> (x, s, z) }
        """
    )
    with pytest.raises(ExportError, match=r"quantizer of 'x' computes its scale .* Freeze"):
        grid_of(model.graph[0])


@pytest.mark.parametrize("scale", ["0.0", "-1.0", "nan"])
def test_scale_that_is_not_positive_is_refused(scale: str) -> None:
    model = parsed(QUANTIZED % ("1.0", "0", 0, 255))
    model.graph.initializers["s"].const_value = ir.tensor(np.float32(scale))
    with pytest.raises(ExportError, match=r"quantizer of 'x' has a scale of"):
        grid_of(model.graph[0])


@given(
    values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
    scale=st.floats(2**-10, 8, width=32),
    zero_point=st.integers(0, 255),
)
def test_integers_are_those_of_torch(values: list[float], scale: float, zero_point: int) -> None:
    x = torch.tensor(values)
    found = grid(scale, zero_point, 0, 255).integers(x.numpy())
    expected = torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(scale), torch.tensor(zero_point, dtype=torch.int32), 0, 255
    )
    steps = (found - zero_point).astype(np.float32)
    assert np.array_equal(steps * np.float32(scale), expected.numpy())


def test_grids_of_other_limits_differ() -> None:
    assert grid(0.5, 0, 0, 255).equals(grid(0.5, 0, 0, 255))
    assert not grid(0.5, 0, 0, 255).equals(grid(0.5, 0, 0, 127))


def test_every_operation_has_a_translation() -> None:
    names = {key.name() for key in translations()}
    assert names == {
        "aten::fake_quantize_per_tensor_affine",
        "aten::fake_quantize_per_tensor_affine.tensor_qparams",
        "aten::fake_quantize_per_channel_affine",
        "aten::_fake_quantize_learnable_per_tensor_affine",
        "aten::_fake_quantize_learnable_per_channel_affine",
    }


def test_other_nodes_are_no_fake_quantize() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    assert not is_fake_quantize(model.graph[0])
    assert not is_fake_quantize(None)
