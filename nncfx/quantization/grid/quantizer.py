"""The hooks that quantize: one module per quantized tensor."""

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
    """Rounds a tensor to a grid of integers and back, in the forward.

    Its grid is a constant until `learn` is called; then an optimizer can move it: symmetric grids
    by their largest number `peak` (or its logarithm), asymmetric ones by their ends `low` and
    `high`. All of these stay in float32 where the model is cast to 16 bits.

    Attributes:
        spec: How it quantizes.
        is_active: Whether it quantizes at all; a Python bool, part of no `state_dict`.
        was_learned: Whether training has put the grid, now a constant, where it is.
        plan: What put it where it stands, shared with the other quantizers of the model; None for
            one that was made by itself.
        number: Its place in the plan.
    """

    step: Tensor
    zero: Tensor
    plan: QuantizationPlan | None = None
    number: int = -1

    def __init__(self, spec: QuantizerSpec, shape: tuple[int, ...] = ()) -> None:
        """Take the shape of the scale: () for one, (n,) for one per channel or group."""
        super().__init__()
        self.spec = spec
        self.is_active = True
        self.was_learned = False
        self.register_buffer("step", torch.ones(shape, dtype=torch.float32, device="cpu"))
        self.register_buffer("zero", torch.zeros(shape, dtype=torch.int32, device="cpu"))

    @property
    def scale(self) -> Tensor:
        """The distance of two neighbours on the grid: a scalar, one per channel or per group."""
        return self._qparams()[0]

    @property
    def zero_point(self) -> Tensor:
        """The integer that stands for 0, shaped as `scale`, int32."""
        return self._qparams()[1].detach().to(torch.int32)

    @property
    def planned(self) -> PlannedQuantizer:
        """What its plan says of it; its own `spec` may differ by the sign."""
        assert self.plan is not None  # noqa: S101 (placed by one)
        return self.plan.quantizers[self.number]

    @property
    def storage_bits(self) -> int:
        """The bits that an entry of what it rounds takes as an integer."""
        return self.spec.bits

    @property
    def is_learned(self) -> bool:
        """Whether the grid is made of parameters."""
        return bool(self._parameters)

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # a scale of 8 significant bits would move the ends of a grid by half a step
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
            # LSQ: without this, the gradient grows with the number of elements it is summed over
            elements = math.prod(x.shape[1:] if self.spec.axis is None else x.shape)
            factor = 1 / math.sqrt(max(elements, 1) * self.spec.quant_max)
            return fake_quantize(x, scale, zero_point, self.spec, gradient_scale=factor)
        return fake_quantize(x, scale, zero_point, self.spec)

    def _qparams(self) -> tuple[Tensor, Tensor]:
        """Return scale and zero point; the latter is a whole float where it is learned."""
        learned = dict(self.named_parameters(recurse=False))
        if "low" in learned:
            return qparams_from_range(learned["low"], learned["high"], self.spec)
        if learned:
            logarithmic = "log2_peak" in learned
            peak = torch.exp2(learned["log2_peak"]) if logarithmic else learned["peak"].abs()
            return qparams_from_range(-peak if self.spec.signed else peak * 0, peak, self.spec)
        return self.step, self.zero

    def set_range(self, low: Tensor, high: Tensor) -> None:
        """Take the grid that holds `low` to `high` and 0; shapes as the scale's."""
        self.set_qparams(*qparams_from_range(low.detach(), high.detach(), self.spec))

    def set_qparams(self, scale: Tensor, zero_point: Tensor | None = None) -> None:
        """Take `scale` and `zero_point` (0 if None), which broadcast to the present ones."""
        self.was_learned = False
        with torch.no_grad():
            self.step.copy_(scale)
            self.zero.copy_(torch.zeros_like(self.zero) if zero_point is None else zero_point)
            low, high = range_of(self.step, self.zero, self.spec)
            ends = {"low": low, "high": high, "peak": high, "log2_peak": torch.log2(high)}
            for name, parameter in self.named_parameters(recurse=False):
                parameter.copy_(ends[name])

    def take(self, kept: Tensor) -> None:
        """Keep the channels (or groups) of these indices, and forget the others."""
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
        """Make parameters of the grid, from where it stands; a grid that learns stays as it is.

        The gradient to the scale is multiplied by `1 / sqrt(elements * quant_max)`, where the
        elements are those of one example.

        Args:
            logarithmic: Train the logarithm of a symmetric grid's peak.

        Raises:
            ArgumentError: the format is float8, whose scale has no gradient here.

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
        """Make the grid a constant again, where it stands now."""
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
