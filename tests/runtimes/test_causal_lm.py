"""A session of a file with a cache, against a model whose tokens are known by hand."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.runtimes import CausalLM

# The next token is the sum of all tokens so far, and counts up to 15: the cache holds the tokens.
PAST = "past_key_values.0.key"
COUNTING = """
<ir_version: 10, opset_import: ["" : 21]>
counting (int64[batch, length] input_ids, int64[batch, total] attention_mask,
          float[batch, 1, before, 1] past) =>
         (float[batch, length, 16] logits, float[batch, 1, more, 1] present)
<int64[1] one = {1}, int64[1] three = {3}, int64 depth = {16}, float[2] ends = {0.0, 1.0},
 int64[1] axes = {2}>
{
  four = Constant <value_ints: ints = [1, 3]> ()
  floats = Cast <to: int = 1> (input_ids)
  tokens = Unsqueeze (floats, four)
  present = Concat <axis = 2> (past, tokens)
  total_sum = ReduceSum <keepdims = 0> (present, axes)
  whole = Cast <to: int = 7> (total_sum)
  flat = Squeeze (whole, one)
  shape = Shape (input_ids)
  wide = Expand (flat, shape)
  logits = OneHot <axis = -1> (wide, depth, ends)
}
"""


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    model = parser.parse_model(COUNTING)
    for names in (node.input for node in model.graph.node):
        names[:] = [PAST if name == "past" else name for name in names]
    model.graph.input[2].name = PAST  # the parser has no dots in names
    onnx.save(model, tmp_path / "counting.onnx")
    return tmp_path / "counting.onnx"


def test_each_step_reads_what_came_before(counting: Path) -> None:
    with CausalLM(counting) as session:
        assert session.generate([[1, 0], [0, 2]], max_new_tokens=3).tolist() == [
            [1, 0, 1, 2, 4],
            [0, 2, 2, 4, 8],
        ]
        assert session.generate([[1]], max_new_tokens=5, eos_token_id=4).tolist() == [[1, 1, 2, 4]]
        stream = session.stream(np.array([[3]]), max_new_tokens=2)
        assert [one.tolist() for one in stream] == [[3], [6]]


def test_a_choice_of_ones_own(counting: Path) -> None:
    with CausalLM(counting) as session:
        found = session.generate(
            [[1]], max_new_tokens=3, choose=lambda logits: logits.argmax(-1) - 1
        )
    assert found.tolist() == [[1, 0, 0, 0]]


def test_shapes_and_files_that_do_not_fit_are_refused(counting: Path, tmp_path: Path) -> None:
    with CausalLM(counting) as session:
        with pytest.raises(ArgumentError, match="batch x length"):
            session.generate([1, 2])
        with pytest.raises(ArgumentError, match=r"attention_mask of \(1, 2\)"):
            session.generate([[1]], attention_mask=[[1, 1]])
        with pytest.raises(ArgumentError, match="max_new_tokens is 0"):
            session.generate([[1]], max_new_tokens=0)
    plain = '<ir_version: 10, opset_import: ["" : 21]> f (float[1] x) => (float[1] y) '
    onnx.save(parser.parse_model(plain + "{ y = Relu (x) }"), tmp_path / "plain.onnx")
    with pytest.raises(RuntimeFailure, match="reads x and no past"):
        CausalLM(tmp_path / "plain.onnx")
