"""Batch norms go into the scales of integer weights; the integers stay."""

import numpy as np
import onnx_ir as ir

from nncfx.export.ir.graph_edits import constant_of
from nncfx.export.ir.integer_weights import IntegerWeight, integer_weights
from nncfx.export.passes.folded_norms import fold_batch_norms
from nncfx.targets import TARGETS
from onnx_files import parsed

# Channels: doubled, negated, switched off; epsilon 0, variance 1.
MODEL = """
g (float[1,1,1,1] x) => (float[1,3,1,1] y)
<float[3,1,1,1] w = {0.1, 0.2, 0.4}, float[3] s = {0.1, 0.1, 0.1}, int32[3] z = {0, 0, 0},
 float[3] bias = {1.0, 1.0, 1.0}, float[3] gamma = {2.0, -1.0, 0.0},
 float[3] beta = {0.0, 0.5, 3.0},
 float[3] mean = {0.5, 0.0, 0.0}, float[3] var = {1.0, 1.0, 1.0}>
{ q = nncfx.FakeQuantize <axis = 0, quant_min = -127, quant_max = 127> (w, s, z)
  c = Conv <group = 1> (x, q%s)
  y = BatchNormalization <epsilon = 0.0> (c, gamma, beta, mean, var) }
"""


def folded(text: str) -> tuple[ir.Model, IntegerWeight]:
    model = parsed(text)
    [weight] = integer_weights(model.graph, TARGETS["onnxruntime"])
    fold_batch_norms(model.graph, [weight])
    return model, weight


def test_integers_stay_and_turn_with_the_sign() -> None:
    _, weight = folded(MODEL % ", bias")
    assert weight.integers.ravel().tolist() == [1, -2, 0]


def test_scales_are_multiplied_and_those_of_dead_channels_are_one() -> None:
    _, weight = folded(MODEL % ", bias")
    assert np.allclose(weight.grid.scale, [0.2, 0.1, 1.0])


def test_the_bias_takes_mean_and_shift() -> None:
    model, _ = folded(MODEL % ", bias")
    assert constant_of(model.graph[1].inputs[2]).tolist() == [1.0, -0.5, 3.0]


def test_a_layer_without_bias_gets_one() -> None:
    model, _ = folded(MODEL % "")
    assert constant_of(model.graph[1].inputs[2]).tolist() == [-1.0, 0.5, 3.0]


def test_one_scale_becomes_one_per_channel() -> None:
    text = (MODEL % "").replace("axis = 0", "axis = -1")
    text = text.replace(
        "float[3] s = {0.1, 0.1, 0.1}, int32[3] z = {0, 0, 0}", "float s = {0.1}, int32 z = {0}"
    )
    _, weight = folded(text)
    assert weight.grid.axis == 0
    assert np.allclose(weight.grid.scale, [0.2, 0.1, 1.0])


def test_a_layer_that_others_read_keeps_its_batch_norm() -> None:
    text = (MODEL % "").replace("(float[1,3,1,1] y)", "(float[1,3,1,1] y, float[1,3,1,1] c)")
    model, _ = folded(text)
    assert "BatchNormalization" in [node.op_type for node in model.graph]
