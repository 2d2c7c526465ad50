"""Exports of models that compute something else while they are exported."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

import nncfx
from nncfx.errors import ExportError

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class Branching(nn.Module):
    """A sum between two layers; one more sum before it while exported."""

    def __init__(self, *, more: bool) -> None:
        super().__init__()
        self.first, self.last, self.more = nn.Linear(6, 6), nn.Linear(6, 2), more

    @override
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.more and torch.compiler.is_exporting():
            y = y * (torch.ones(6) + 1.0) / 2
        result: Tensor = self.last(y + x)
        return result


@pytest.mark.parametrize("dynamic_batch", [True, False])
def test_a_quantizer_that_stands_elsewhere_in_the_program_is_refused(
    dynamic_batch: bool, tmp_path: Path
) -> None:
    quantized = nncfx.quantize(Branching(more=True).eval(), [X])
    with pytest.raises(ExportError, match=r"another path.*__add___0.*shape \(6,\) instead of \(4"):
        nncfx.export_onnx(quantized, tmp_path / "x.onnx", X, dynamic_batch=dynamic_batch)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dynamic_batch", [True, False])
def test_one_that_stands_where_it_did_is_not(dynamic_batch: bool, tmp_path: Path) -> None:
    quantized = nncfx.quantize(Branching(more=False).eval(), [X])
    file = nncfx.export_onnx(quantized, tmp_path / "x.onnx", X, dynamic_batch=dynamic_batch)
    assert file.path.exists()
