"""A model is captured as torch's exporter captures it, with equal calls in exportable form."""

import torch
from torch import nn

from nncfx.export.capture.captured_program import captured_program


class _Einsum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert torch.onnx.is_in_onnx_export()
        return torch.einsum("bij,bjk->bik", x, y)


class _Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_calls_are_exportable() -> None:
    call = ((torch.randn(2, 3, 4), torch.randn(2, 4, 5)), {})
    program = captured_program(_Einsum(), call, {"x": {0: "batch"}, "y": {0: "batch"}})
    assert program is not None
    targets = [str(node.target) for node in program.graph.nodes]
    assert "aten.matmul.default" in targets
    assert "aten.einsum.default" not in targets
    assert not torch.onnx.is_in_onnx_export()


def test_what_cannot_be_captured_is_left_to_torch() -> None:
    assert captured_program(_Branches(), ((torch.randn(2),), {}), None) is None
