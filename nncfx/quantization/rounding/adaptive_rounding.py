"""AdaRound: learn for each weight whether to round it up or down."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.quantization.grid.fake_quantize import along_axis, fake_quantize, from_rows
from nncfx.quantization.grid.spec import QuantizerSpec

_STRETCH: Final = (-0.1, 1.1)
"""Ends of the stretched sigmoid, which is clipped to [0, 1]: equation 23."""


@dataclass(frozen=True, kw_only=True)
class RoundingSettings:
    """Settings of learned rounding.

    Attributes:
        steps: Number of steps of gradient descent.
        batch: Examples in each step.
        lr: Adam's learning rate.
        regularization: Weight of the term that pulls each decision to up or down, after the first
            fifth of the steps; errors are relative to that of rounding to nearest.
        seed: Seed of the choice of examples.

    Raises:
        ArgumentError: a value is not positive.
    """

    steps: int = 300
    batch: int = 32
    lr: float = 0.1
    regularization: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "lr", "regularization"):
            if getattr(self, name) <= 0:
                raise ArgumentError(
                    f"{name} is {getattr(self, name)}; it must be positive. Leave it out for the "
                    "default."
                )


def adaptive_rounding(
    call: Callable[[Tensor, Tensor], Tensor],
    weight: Tensor,
    grid: tuple[Tensor, Tensor, QuantizerSpec],
    data: tuple[Tensor, Tensor],
    settings: RoundingSettings | None = None,
) -> Tensor:
    """Return `weight` on its grid, each element rounded up or down to preserve the outputs.

    If the result is worse than rounding to nearest on `data`, the latter is returned.

    Args:
        call: Returns the layer's output for inputs and a weight; must be differentiable.
        weight: Any shape, float.
        grid: Scale, zero point and spec, as in `fake_quantize`.
        data: The layer's inputs in the quantized model, and its outputs in the original model;
            both with the examples on axis 0.
        settings: Settings of the learning; defaults if None.

    Source: Nagel et al. 2020, Up or Down? Adaptive Rounding for Post-Training Quantization,
    equations 21 to 25.
    """
    chosen = settings or RoundingSettings()
    scale, zero_point, spec = grid
    nearest = fake_quantize(weight, scale, zero_point, spec)
    step = per_element(scale, weight, spec)
    zero = per_element(zero_point, weight, spec)
    below = torch.floor(weight / step)

    def on_grid(up: Tensor) -> Tensor:
        return ((below + up + zero).clamp(spec.quant_min, spec.quant_max) - zero) * step

    up = _learn(call, on_grid, weight / step - below, data, chosen)
    learned = fake_quantize(on_grid((up > 0.5).to(weight.dtype)), scale, zero_point, spec)  # noqa: PLR2004 (nearer to up)
    inputs, targets = data
    with torch.no_grad():
        errors = [(call(inputs, one) - targets).square().mean() for one in (learned, nearest)]
    return learned if errors[0] < errors[1] else nearest


def per_element(value: Tensor, weight: Tensor, spec: QuantizerSpec) -> Tensor:
    """Expand a scale or zero point of `spec` to each element of `weight`."""
    if spec.group is not None:
        return from_rows(value.view(-1, 1).expand(-1, spec.group), weight, spec)
    return along_axis(value, weight, spec.axis).expand_as(weight)


def _learn(
    call: Callable[[Tensor, Tensor], Tensor],
    on_grid: Callable[[Tensor], Tensor],
    fraction: Tensor,
    data: tuple[Tensor, Tensor],
    settings: RoundingSettings,
) -> Tensor:
    """Return the learned fraction of a step that each element is rounded up, in [0, 1]."""
    inputs, targets = data
    low, high = _STRETCH
    start = ((fraction.clamp(0, 1) - low) / (high - low)).logit().detach()
    logits = start.requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=settings.lr)
    with torch.no_grad():
        nearest = on_grid(torch.round(fraction))
        unit = (call(inputs, nearest) - targets).square().mean().clamp(min=1e-20)
    generator = torch.Generator().manual_seed(settings.seed)
    size = min(settings.batch, len(inputs))
    for number in range(settings.steps):
        drawn = torch.randint(len(inputs), (size,), generator=generator, device="cpu")
        rows = drawn.to(inputs.device)
        with torch.enable_grad():
            up = _stretched(logits)
            error = (call(inputs[rows], on_grid(up)) - targets[rows]).square().mean() / unit
            done = number / settings.steps
            if done >= 0.2:  # noqa: PLR2004 (the first fifth is free)
                sharpness = 20 - 18 * (done - 0.2) / 0.8
                undecided = (1 - (2 * up - 1).abs() ** sharpness).mean()
                error = error + settings.regularization * undecided
            optimizer.zero_grad()
            error.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
            optimizer.step()
    return _stretched(logits).detach()


def _stretched(logits: Tensor) -> Tensor:
    low, high = _STRETCH
    return (logits.sigmoid() * (high - low) + low).clamp(0, 1)
