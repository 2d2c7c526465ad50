"""Round a model at a given rate, with second moments for layers and a diagonal for the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.controllers.loops.batch_norm_adaptation import Forward
from nncfx.quantization.rate_distortion.curvature import OutputCurvature
from nncfx.quantization.rate_distortion.error_feedback import LayerRounding
from nncfx.quantization.rate_distortion.output_matching import adjustable_parameters, match_outputs
from nncfx.schemes.rate_distortion.code_lengths import estimated_bits
from nncfx.schemes.rate_distortion.rounding import best_step, finest_step, round_weights
from nncfx.tracing.calls.model_copy import copy_of

_FINER: Final = 0.25
"""Rate of norms and biases relative to that of weights; they are few and need to be precise."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """A model at one rate.

    Attributes:
        model: The model; each parameter is integers times one step.
        rate: Loss per bit.
        bits: Estimated bits that an adaptive coder needs for the integers.
    """

    model: nn.Module
    rate: float
    bits: float


class Coder:
    """Rounds one model at any rate.

    Args:
        model: In evaluation mode, with norm statistics absorbed where possible; never changed.
        curvature: Curvature of `model`.
        batches: Inputs on which outputs are matched to those of `model`.
        forward: Calls a model with a batch.
    """

    def __init__(
        self,
        model: nn.Module,
        curvature: OutputCurvature,
        batches: Sequence[Any],
        forward: Forward | None = None,
    ) -> None:
        self._model = model
        self._diagonal = curvature.diagonal
        self._batches = batches
        self._forward = forward
        parameters = dict(model.named_parameters())
        self._layers = {
            name: _layer(parameters[name].detach(), moments, curvature.of_rows(name))
            for name, moments in curvature.moments.items()
            if bool(moments.any()) and bool(curvature.diagonal[name].any())
        }

    def rounded(self, rate: float, *, match: bool = True) -> Rounded:
        """Return the model rounded at `rate`, a loss per bit, above 0.

        The loss is a share of the squared outputs. With `match`, norms and biases are adjusted to
        compensate the rounding, which takes longer.
        """
        model = copy_of(self._model)
        parameters = dict(model.named_parameters())
        late: dict[str, Tensor] = adjustable_parameters(model)
        bits = 0.0
        for name, parameter in parameters.items():
            if name in self._layers:
                bits += self._round_layer(parameter, self._layers[name], rate)
            elif name not in late and parameter.is_floating_point():
                bits += _round_alone(parameter, self._diagonal[name], rate)
        if match:
            match_outputs(model, self._model, self._batches, forward=self._forward)
        for name, one in late.items():
            bits += _round_alone(one, self._diagonal[name], _FINER * rate)
        return Rounded(model, rate, bits)

    def _round_layer(self, weight: Tensor, parts: Sequence[LayerRounding], rate: float) -> float:
        step = max(one.best_step(rate) for one in parts)
        integers = torch.cat([one.integers(step, rate) for one in parts])
        return _put(weight, integers, step)


def _layer(weight: Tensor, moments: Tensor, factors: Tensor) -> list[LayerRounding]:
    """Return one rounding for each group of a layer."""
    groups = len(moments)
    rows = weight.flatten(1).float().view(groups, len(weight) // groups, -1)
    by_group = factors.view(groups, -1)
    # rows without influence on these examples count a little, so they are not rounded to zeros
    floor = factors.mean()
    return [
        LayerRounding(own, moment, 0.75 * factor + 0.25 * floor)
        for own, moment, factor in zip(rows, moments, by_group, strict=True)
    ]


def _round_alone(parameter: Tensor, diagonal: Tensor, rate: float) -> float:
    """Round a parameter with only the diagonal of its curvature; return its bits."""
    rows = parameter.detach().float()
    rows = rows.flatten(1) if rows.ndim > 1 else rows.reshape(1, -1)
    found = diagonal.reshape(rows.shape)
    # there are few samples, so average the curvature of the row, or element, with the mean of all
    own = found.mean(1, keepdim=True) if diagonal.ndim > 1 else found
    curvature = (own + found.mean()) / 2
    if not rows.numel() or not bool(curvature.any()):
        return 0.0
    step = best_step(curvature.mean(), rate)
    if step < finest_step(rows):
        return _shorten(parameter)
    return _put(parameter, round_weights(rows, curvature, step, rate)[0], step)


def _shorten(parameter: Tensor) -> float:
    """Round a parameter to bfloat16 and return its bits.

    It is for parameters too wide for one step, such as norms over dead channels.
    """
    parameter.data.copy_(parameter.data.bfloat16())
    return 16.0 * parameter.numel()


def _put(parameter: Tensor, integers: Tensor, step: float) -> float:
    # avoid negative zeros, which files would have to store
    values = (integers + 0.0) * step
    parameter.data.copy_(torch.where(integers == 0, 0.0, values).view_as(parameter))
    return estimated_bits(integers)
