"""The hook that quantizes a tensor."""

import math
from collections.abc import Callable
from typing import Self, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range, range_of
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.schemes.wide_floats import NARROW


@final
class Quantizer(nn.Module):
    """Rounds a tensor to a grid of integers and back.

    Its grid is constant until `learn` is called. Then it has parameters for an optimizer: the
    largest number `peak` (or its logarithm) of a symmetric grid, the ends `low` and `high` of an
    asymmetric grid. All of them stay in float32 when the model is cast to 16 bits.

    Attributes:
        spec: How it quantizes.
        is_active: Whether it quantizes at all; a Python bool, not part of the `state_dict`.
        was_learned: Whether the grid, now constant, was learned in training.
        plan: The plan it belongs to, shared with the other quantizers of the model; None for a
            quantizer that was created on its own.
        number: Its index in the plan.
    """

    step: Tensor
    zero: Tensor
    plan: QuantizationPlan | None = None
    number: int = -1

    def __init__(self, spec: QuantizerSpec, shape: tuple[int, ...] = ()) -> None:
        """Create a quantizer whose scale has `shape`: (), or (n,) for n channels or groups."""
        super().__init__()
        self.spec = spec
        self.is_active = True
        self.was_learned = False
        self.register_buffer("step", torch.ones(shape, dtype=torch.float32, device="cpu"))
        self.register_buffer("zero", torch.zeros(shape, dtype=torch.int32, device="cpu"))

    @property
    def scale(self) -> Tensor:
        """The distance between neighbours on the grid: a scalar, one per channel or per group."""
        return self._qparams()[0]

    @property
    def zero_point(self) -> Tensor:
        """The integer that represents 0, shaped as `scale`, int32."""
        return self._qparams()[1].detach().to(torch.int32)

    @property
    def planned(self) -> PlannedQuantizer:
        """Its entry in the plan, whose `spec` can differ in the sign from its own."""
        assert self.plan is not None  # noqa: S101 (placed by one)
        return self.plan.quantizers[self.number]

    @property
    def storage_bits(self) -> int:
        """Bits per element when stored as integers."""
        return self.spec.bits

    @property
    def is_learned(self) -> bool:
        """Whether the grid has trainable parameters."""
        return bool(self._parameters)

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # a bfloat16 scale has 8 significant bits, which could move the ends by half a step
        def moved(one: Tensor) -> Tensor:
            found = fn(one)
            return one.to(found.device) if found.dtype in NARROW else found

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]  # of torch
        return self

    @override
    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active:
            return x
        scale, zero_point = self._qparams()
        if scale.requires_grad:
            # LSQ: otherwise the gradient grows with the number of elements summed
            elements = math.prod(x.shape[1:] if self.spec.axis is None else x.shape)
            factor = 1 / math.sqrt(max(elements, 1) * self.spec.quant_max)
            return fake_quantize(x, scale, zero_point, self.spec, gradient_scale=factor)
        return fake_quantize(x, scale, zero_point, self.spec)

    def _qparams(self) -> tuple[Tensor, Tensor]:
        """Return scale and zero point; a learned zero point is a whole float."""
        learned = dict(self.named_parameters(recurse=False))
        if "low" in learned:
            return qparams_from_range(learned["low"], learned["high"], self.spec)
        if learned:
            logarithmic = "log2_peak" in learned
            peak = torch.exp2(learned["log2_peak"]) if logarithmic else learned["peak"].abs()
            return qparams_from_range(-peak if self.spec.signed else peak * 0, peak, self.spec)
        return self.step, self.zero

    def set_range(self, low: Tensor, high: Tensor) -> None:
        """Set the grid to cover `low`, `high` and 0; both are shaped as the scale."""
        self.set_qparams(*qparams_from_range(low.detach(), high.detach(), self.spec))

    def set_qparams(self, scale: Tensor, zero_point: Tensor | None = None) -> None:
        """Set `scale` and `zero_point` (0 if None), which broadcast to the current shape."""
        self.was_learned = False
        with torch.no_grad():
            self.step.copy_(scale)
            self.zero.copy_(torch.zeros_like(self.zero) if zero_point is None else zero_point)
            low, high = range_of(self.step, self.zero, self.spec)
            ends = {"low": low, "high": high, "peak": high, "log2_peak": torch.log2(high)}
            for name, parameter in self.named_parameters(recurse=False):
                parameter.copy_(ends[name])

    def take(self, kept: Tensor) -> None:
        """Keep only the channels (or groups) with these indices."""
        for name, buffer in list(self.named_buffers(recurse=False)):
            self.register_buffer(name, buffer[kept])
        for name, parameter in list(self.named_parameters(recurse=False)):
            narrow = nn.Parameter(parameter.detach()[kept], parameter.requires_grad)
            self.register_parameter(name, narrow)

    def range(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest number on the grid, shaped as the scale."""
        scale, zero_point = self._qparams()
        return range_of(scale.detach(), zero_point.detach(), self.spec)

    def learn(self, *, logarithmic: bool = False) -> None:
        """Turn the grid into parameters with its current values, unless it is learned already.

        The gradient to the scale is multiplied by `1 / sqrt(elements * quant_max)`, where
        `elements` counts one example.

        Args:
            logarithmic: Train the logarithm of a symmetric grid's peak.

        Raises:
            ArgumentError: the format is float8 or a codebook, whose scale has no gradient here.

        Source: Esser et al., "Learned step size quantization", 2020, section 2.2; NNCF 2.19,
        which trains scale, or low and range.
        """
        if not self.spec.is_integer:
            raise ArgumentError(
                f"The grid of a {self.spec.mode} quantizer cannot be learned; it stays where "
                "calibration has put it. Use integers, or leave it constant."
            )
        if not self.is_learned:
            names = ["low", "high"]
            if self.spec.mode == "symmetric":
                names = ["log2_peak" if logarithmic else "peak"]
            for name in names:
                self.register_parameter(name, nn.Parameter(torch.empty_like(self.step)))
            self.set_qparams(self.step, self.zero)

    def freeze(self) -> None:
        """Make the grid constant again, with its current values."""
        scale, zero_point = self._qparams()
        was_learned = self.was_learned or self.is_learned
        self._parameters.clear()
        self.set_qparams(scale.detach(), zero_point.detach())
        self.was_learned = was_learned

    @override
    def extra_repr(self) -> str:
        one = self.spec
        where = f", axis {one.axis}" if one.axis is not None else ""
        where += f", groups of {one.group}" if one.group is not None else ""
        return f"{one.dtype}, {one.bits} bits, {one.mode}{where}"
