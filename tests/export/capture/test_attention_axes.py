"""Attention over any number of axes is exported."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nncfx
from nncfx.quantization import integer_arithmetic
from onnx_files import run_file

SHAPES = {
    "one head": ((6, 8), (7, 8), None),
    "no heads": ((2, 6, 8), (2, 7, 8), None),
    "batch and heads": ((2, 3, 6, 8), (2, 3, 7, 8), (6, 7)),
    "windows": ((2, 5, 3, 6, 8), (2, 5, 3, 7, 8), None),
    "windows with a mask for each": ((2, 5, 3, 6, 8), (2, 5, 3, 7, 8), (5, 1, 6, 7)),
    "a mask for each head": ((2, 5, 3, 6, 8), (2, 5, 3, 7, 8), (3, 6, 7)),
    "keys of all windows": ((2, 5, 3, 6, 8), (2, 1, 3, 7, 8), None),
}


class Attention(nn.Module):
    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, 2 * key, mask)


@pytest.mark.parametrize("case", SHAPES)
def test_the_file_computes_what_torch_does(case: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    shapes = [one for one in SHAPES[case] if one is not None]
    inputs = tuple(torch.randn(one) for one in shapes)
    expected = Attention()(*inputs).numpy()
    is_dynamic = len(shapes) == 2 and shapes[0][0] == shapes[1][0]
    file = nncfx.export_onnx(Attention(), tmp_path / "a.onnx", inputs, dynamic_batch=is_dynamic)
    session = onnxruntime.InferenceSession(file.path)
    fed = dict(zip(file.inputs, (one.numpy() for one in inputs), strict=True))
    np.testing.assert_allclose(session.run(None, fed)[0], expected, atol=1e-5)


class Windows(nn.Module):
    """Attention in windows, as Twins computes it: five axes."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(8, 24)
        self.project = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.read(x).unflatten(-1, (3, 2, 4)).permute(3, 0, 1, 4, 2, 5)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        return self.project(mixed.transpose(2, 3).flatten(-2))


def test_a_quantized_model_attends_in_windows_for_any_batch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Windows().eval(), torch.randn(3, 5, 6, 8)
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "windows.onnx", x[:2])
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        expected = quantized(x).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
