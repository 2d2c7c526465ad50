"""torch exports its own fake-quantize operators where an axis is open."""

import torch
from torch import Tensor, nn

from nncfx.quantization.grid.operator_shapes import know_shapes


class Rounding(nn.Module):
    """Calls each of torch's fake-quantize operators that quantizers of torch use."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255)
        scale, zero = torch.full((3,), 0.2), torch.zeros(3, dtype=torch.int32)
        x = torch.fake_quantize_per_tensor_affine(x, scale[0], zero[0], 0, 255)
        x = torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -128, 127)
        x = torch._fake_quantize_learnable_per_tensor_affine(
            x, scale[:1], scale[:1] * 0, 0, 255, 1.0
        )
        return torch._fake_quantize_learnable_per_channel_affine(
            x, scale, scale * 0, 1, 0, 255, 1.0
        )


def test_every_fake_quantize_operator_is_exported_with_an_open_axis() -> None:
    know_shapes()
    axes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(Rounding(), (torch.ones(2, 3),), dynamic_shapes=axes)
    x = torch.randn(7, 3)
    assert torch.equal(program.module()(x), Rounding()(x))


def test_shapes_are_told_only_once_however_often_asked() -> None:
    assert know_shapes()
    assert know_shapes()
