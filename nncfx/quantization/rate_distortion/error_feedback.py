"""Rate-distortion rounding in which later columns compensate the errors of earlier ones."""

import torch
from torch import Tensor

from nncfx.quantization.rounding.curvature import curvature, replace_columns
from nncfx.schemes.rate_distortion.rounding import best_step, cheapest, finest_step, round_weights


class LayerRounding:
    """Rounds the rows of one weight at any rate.

    This is GPTQ with integers that minimise loss plus rate, given the columns before; the loss is
    exact for the second moments of the layer's inputs.

    Args:
        rows: o x i, float32.
        moments: i x i, the sum of x x^T over the vectors that a row is multiplied by.
        factors: Weight of each row's squared errors, o.

    Source: Frantar et al. 2023, GPTQ, algorithm 1.
    """

    def __init__(self, rows: Tensor, moments: Tensor, factors: Tensor) -> None:
        self._known = curvature(moments)
        self._rows = rows
        self._factors = factors

    @property
    def _columns(self) -> Tensor:
        """Weight of the squared error of each column after compensation, i, in their order."""
        return self._known.factor.diagonal().square().reciprocal().float()

    def best_step(self, rate: float) -> float:
        """Return the step at which a bit is worth `rate`."""
        step = best_step(self._columns * self._factors.mean(), rate)
        return max(step, finest_step(self._rows))

    @torch.no_grad()
    def integers(self, step: float, rate: float) -> Tensor:
        """Return the integers for `step` at `rate`, a loss per bit, o x i, as floats."""
        known, columns = self._known, self._columns
        in_order = self._rows[:, known.order]
        _, lengths = round_weights(in_order, columns * self._factors.unsqueeze(1), step, rate)
        contexts = lengths.contexts.T.contiguous()
        losses = (columns * step**2).unsqueeze(1) * self._factors

        def choice(column: int, values: Tensor) -> Tensor:
            return cheapest(values.float(), contexts[column], lengths, losses[column], rate)

        found, _ = replace_columns(self._rows / step, known, lambda _, __: choice)
        return found.to(self._rows.dtype)
