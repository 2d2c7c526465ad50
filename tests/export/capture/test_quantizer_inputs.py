"""Exports of models that compute something else while they are exported."""

from pathlib import Path

import onnx
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


class Pools(nn.Module):
    """Averages by interpolation while ONNX is written, as PSPNet's authors do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(16, 4, 1)

    @override
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        if torch.onnx.is_in_onnx_export():
            pooled = nn.functional.interpolate(y * 0.5 + y * 0.5, size=(1, 1), mode="area")
        else:
            pooled = nn.functional.adaptive_avg_pool2d(y, 1)
        result: Tensor = self.last(torch.cat([y, pooled.expand_as(y)], 1))
        return result


def test_a_quantized_model_takes_the_path_that_it_was_traced_on(tmp_path: Path) -> None:
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    quantized = nncfx.quantize(Pools().eval(), [images])
    file = nncfx.export_onnx(quantized, tmp_path / "x.onnx", images)
    types = [node.op_type for node in onnx.load(file.path).graph.node]
    assert "Resize" not in types
    assert "GlobalAveragePool" in types or "ReduceMean" in types


def test_a_float_model_takes_the_path_that_its_author_wrote_for_onnx(tmp_path: Path) -> None:
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    file = nncfx.export_onnx(Pools().eval(), tmp_path / "x.onnx", images)
    types = [node.op_type for node in onnx.load(file.path).graph.node]
    assert "Mul" in types
