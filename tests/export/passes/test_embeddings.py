"""A table of embeddings tied to the last layer is stored once, in the layer's packed form."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.quantization import quantize_weights
from onnx_files import run_file


class Language(nn.Module):
    """An embedding, and a head that may share its weight."""

    def __init__(self, *, tied: bool, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(50, width), nn.Linear(width, 50)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.embedding(tokens)
        return rows, self.head(torch.tanh(rows))


TOKENS = torch.tensor([[3, 49, 0], [7, 7, 21]])


def tables(path: Path) -> list[onnx.TensorProto]:
    stored = onnx.load(path).graph.initializer
    return [one for one in stored if int(np.prod(one.dims)) >= 50 * 40]


@pytest.mark.parametrize(("tied", "stored"), [(True, 1), (False, 2)])
def test_what_is_tied_is_stored_once(tied: bool, stored: int, tmp_path: Path) -> None:
    model = quantize_weights(Language(tied=tied), example_inputs=TOKENS)
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", TOKENS).path
    assert len(tables(path)) == stored
    rows, _ = run_file(path, TOKENS)
    # integers times a scale, as in the simulation
    np.testing.assert_array_equal(rows, model(TOKENS)[0].detach().numpy())


@pytest.mark.parametrize("group", [8, 16, 24])
def test_groups_of_any_size_are_looked_up(group: int, tmp_path: Path) -> None:
    """ONNX Runtime's operator takes powers of 2 from 16 on."""
    float_model = Language(tied=False, width=48)
    model = quantize_weights(float_model, example_inputs=TOKENS, bits=4, group_size=group)
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", TOKENS).path
    nodes = {one.op_type for one in onnx.load(path).graph.node}
    assert ("GatherBlockQuantized" in nodes) == (group == 16)
    rows, _ = run_file(path, TOKENS)
    np.testing.assert_allclose(rows, model(TOKENS)[0].detach().numpy(), rtol=1e-6)


def test_rows_of_any_number_of_tokens_are_looked_up(tmp_path: Path) -> None:
    model = quantize_weights(Language(tied=True), example_inputs=TOKENS)
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", TOKENS).path
    rows, _ = run_file(path, TOKENS[:1].repeat(5, 1))
    expected = model(TOKENS[:1].repeat(5, 1))[0].detach().numpy()
    np.testing.assert_array_equal(rows, expected)


def test_padded_rows_are_stored_twice(tmp_path: Path) -> None:
    """Blocks of 32 do not divide 48, and what is packed has rows of 64."""
    model = quantize_weights(Language(tied=True, width=48), example_inputs=TOKENS)
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", TOKENS).path
    assert len(tables(path)) == 2
    rows, _ = run_file(path, TOKENS)
    np.testing.assert_array_equal(rows, model(TOKENS)[0].detach().numpy())
