"""The hooks that quantize: one module per quantized tensor."""

from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.quantization.fake_quantize import (
    fake_quantize,
    learned_fake_quantize,
    qparams_from_range,
    range_of,
)
from nncfx.quantization.spec import QuantizerSpec

__all__ = ["Quantizer"]


@final
class Quantizer(nn.Module):
    """Rounds a tensor to a grid of integers and back, in the forward.

    The forward calls torch's own `fake_quantize_per_tensor_affine` or
    `fake_quantize_per_channel_affine` on `scale` and `zero_point`, which exporters know.

    Attributes:
        spec: How it quantizes.
        scale: The distance of two neighbours on the grid: a scalar, one per channel or one per
            group. A parameter once `learn` was called.
        zero_point: The integer that stands for 0, shaped as `scale`, int32.
        is_active: Whether it quantizes at all; a Python bool, part of no `state_dict`.
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, spec: QuantizerSpec, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.spec = spec
        self.is_active = True
        self.register_buffer("scale", torch.ones(shape))
        self.register_buffer("zero_point", torch.zeros(shape, dtype=torch.int32))

    @override
    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active:
            return x
        if self.scale.requires_grad and torch.is_grad_enabled():
            return learned_fake_quantize(x, self.scale, self.zero_point, self.spec)
        return fake_quantize(x, self.scale, self.zero_point, self.spec)

    def set_range(self, low: Tensor, high: Tensor) -> None:
        """Take the grid that holds `low` to `high` and 0; shapes as the scale's."""
        scale, zero_point = qparams_from_range(low.detach(), high.detach(), self.spec)
        self.set_qparams(scale, zero_point)

    def set_qparams(self, scale: Tensor, zero_point: Tensor | None = None) -> None:
        """Take `scale` and `zero_point` (0 if None), which broadcast to the present ones."""
        with torch.no_grad():
            self.scale.copy_(scale)
            if zero_point is None:
                self.zero_point.zero_()
            else:
                self.zero_point.copy_(zero_point)

    def range(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest number on the grid, shaped as the scale."""
        return range_of(self.scale.detach(), self.zero_point, self.spec)

    @override
    def extra_repr(self) -> str:
        one = self.spec
        where = f", axis {one.axis}" if one.axis is not None else ""
        where += f", groups of {one.group}" if one.group is not None else ""
        return f"{one.dtype} ({one.bits} bits), {one.mode}{where}"
