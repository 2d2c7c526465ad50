"""Bias correction: take back the mean shift that quantization gives each channel."""

from collections.abc import Iterable

import torch
from torch import Tensor

from nncfx.quantization.layer_chains import Layer, find_layers
from nncfx.quantization.observation import Note, in_float_first, probing, run_batches
from nncfx.tracing import ExampleInputs, NNCFNetwork, PostSite, Site

__all__ = ["channel_means", "correct_biases"]


def correct_biases(
    model: NNCFNetwork,
    batches: Iterable[ExampleInputs],
) -> dict[str, float]:
    """Shift biases, in place, so that each channel has the mean that it has in float.

    Each batch runs twice, in float and quantized. In the second run each layer's means so far
    are corrected before the next layer reads them, so that a later layer makes up for its own
    shift only. Layers without a bias, or whose bias is shared, are left alone; folding batch
    norms gives convolutions one.

    Args:
        model: With quantizers, calibrated. It runs in evaluation mode.
        batches: Inputs of the model, at least one; the more, the better the means.

    Returns:
        By layer name the largest correction of a channel, in units of the layer's output.

    Raises:
        ArgumentError: there are no batches.

    Source: Nagel et al. 2019, Data-Free Quantization Through Weight Equalization, appendix D
    (empirical bias correction).
    """
    shifts = {
        address: _Shift(layer)
        for address, layer in find_layers(model, model.nncf.graph).items()
        if layer.bias is not None
    }
    notes: dict[Site, Note] = {PostSite(address): one.note for address, one in shifts.items()}
    with probing(model, notes):
        run_batches(model, in_float_first(model, batches))
    return {one.layer.name: one.apply() for one in shifts.values()}


def channel_means(output: Tensor, layer: Layer) -> Tensor:
    """Return the mean of each channel of what `layer` returned."""
    axis = output.ndim - 1
    if layer.operation.function != "linear":
        axis -= layer.weight.ndim - 2
    return output.detach().movedim(axis, -1).reshape(-1, output.shape[axis]).mean(0)


class _Shift:
    """How far a layer's channels are from where they are in float, over the batches so far."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._means: Tensor | None = None
        self._total: Tensor | None = None
        self._batches = 0

    def note(self, output: Tensor) -> Tensor | None:
        """See what the layer returned in float, then quantized; correct the latter."""
        means = channel_means(output, self.layer)
        if self._means is None:
            self._means = means
            return None
        lacking = self._means - means
        self._total = lacking if self._total is None else self._total + lacking
        self._batches += 1
        self._means = None
        axes = self.layer.weight.ndim - 2 if self.layer.operation.function != "linear" else 0
        return output + (self._total / self._batches).view(-1, *[1] * axes)

    @torch.no_grad()
    def apply(self) -> float:
        """Put the mean shift into the bias; return its largest magnitude."""
        if self._total is None or self.layer.bias is None:
            return 0.0
        shift = self._total / self._batches
        self.layer.bias.data += shift
        return float(shift.abs().max())
