"""Cross-layer equalisation: balance the ranges of neighbouring layers channel by channel."""

from typing import Final

import torch
from torch import Tensor, nn

from nncfx.graph import NNCFGraph
from nncfx.operators import functions_of
from nncfx.quantization.preparation.layer_chains import (
    Layer,
    find_layers,
    graph_without_hooks,
    reader_behind,
)
from nncfx.quantization.ranges.observation import warn_if_none
from nncfx.schemes.wide_floats import wide
from nncfx.tracing import ExampleInputs

_FUNCTIONS: Final = functions_of("conv", "linear")
_ELEMENTWISE: Final = frozenset(
    ["relu", "relu_", "leaky_relu", "leaky_relu_", "prelu", "dropout", "dropout_"]
)
"""Functions with f(s x) = s f(x) for s > 0, element by element."""

_OF_CHANNELS: Final = _ELEMENTWISE | {
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("dropout2d", "flatten", "view", "reshape"),
}
"""Functions with that property for whole channels on axis 1."""


_SWEEPS: Final = 20
"""Most passes over all pairs, which change each other's ranges."""


def equalize_layers(
    model: nn.Module, example_inputs: ExampleInputs, *, was_asked: bool = True
) -> tuple[tuple[str, str], ...]:
    """Balance the ranges of pairs of consecutive layers, in place; return the pairs' names.

    In a pair, the second layer is the only reader of the first, through functions such as ReLU or
    pooling that commute with positive factors. The model computes the same up to rounding. This
    helps if weights are quantized per tensor, and does nothing for scales per channel. Fold batch
    norms first: they break a pair, as does ReLU6.

    Args:
        model: Plain, or wrapped without hooks.
        example_inputs: Inputs to trace it with.
        was_asked: Whether to log that there is no such pair.

    Raises:
        ArgumentError: `model` has hooks.
        TracingError: the model fails on the inputs.

    Source: Nagel et al. 2019, Data-Free Quantization Through Weight Equalization, section 4.1.
    """
    pairs = _pairs(model, graph_without_hooks(model, example_inputs))
    needs = "two layers of which the second alone reads the first"
    warn_if_none(pairs, "Equalizing", needs, was_asked=was_asked)
    for _ in range(_SWEEPS):
        changes = [_equalize(first, second) for first, second in pairs]
        if max(changes, default=0.0) < 1e-3:  # noqa: PLR2004 (a thousandth of a range)
            break
    return tuple((first.name, second.name) for first, second in pairs)


def equalization_scales(first: Tensor, second: Tensor) -> Tensor:
    """Return s such that `first / s` equals `second * s`: sqrt(first / second), c.

    Args:
        first: Largest magnitude of each output channel of the first layer, c.
        second: Largest magnitude of each input channel of the second layer, c.

    Where either range is zero, the factor is 1.

    Source: Nagel et al. 2019, equation 11.

    >>> equalization_scales(torch.tensor([8.0, 1.0, 0.0]), torch.tensor([2.0, 1.0, 3.0]))
    tensor([2., 1., 1.])
    """
    scales = (first / second).sqrt()
    return torch.where((first > 0) & (second > 0), scales, torch.ones_like(scales))


def input_ranges(layer: Layer, channels: int) -> Tensor:
    """Return the largest magnitude of the weights for each of `channels` input channels."""
    return wide(_by_input(layer, channels)).abs().amax(dim=(1, 3)).flatten()


def scale_inputs(layer: Layer, scales: Tensor) -> None:
    """Multiply the weights of input channel c by `scales[c]`, in place."""
    view = _by_input(layer, len(scales))
    view *= scales.view(view.shape[0], 1, view.shape[2], 1)


def _by_input(layer: Layer, channels: int) -> Tensor:
    """View the weight as g x o/g x channels per group x elements per channel."""
    weight, groups = layer.rows, layer.groups
    return weight.view(groups, weight.shape[0] // groups, channels // groups, -1)


def _pairs(model: nn.Module, graph: NNCFGraph) -> list[tuple[Layer, Layer]]:
    layers = find_layers(model, graph, _FUNCTIONS)
    pairs = []
    for first in layers.values():
        convolves = first.operation.function != "linear"
        if convolves and len(first.operation.outputs[0].shape) != first.weight.ndim:
            continue  # without a batch axis, channels are not on axis 1
        passing = _OF_CHANNELS if convolves else _ELEMENTWISE
        reader = reader_behind(graph, first.operation, passing)
        second = layers.get(reader.address) if reader else None
        if second is not None and _reads_channels(first, second):
            pairs.append((first, second))
    return pairs


def _reads_channels(first: Layer, second: Layer) -> bool:
    """Return whether `second` reads each channel of `first` as a block, in order."""
    columns = second.weight.shape[1] * second.groups
    if second.operation.function != "linear" or first.operation.function == "linear":
        return columns == len(first.weight)
    entering = second.operation.inputs[0]
    flat = entering is not None and len(entering.shape) == 2  # noqa: PLR2004 (n x channels)
    return flat and columns % len(first.weight) == 0


@torch.no_grad()
def _equalize(first: Layer, second: Layer) -> float:
    """Equalise one pair; return the largest relative change of a range."""
    rows = wide(first.weight.detach()).flatten(1).abs().amax(1)
    scales = equalization_scales(rows, input_ranges(second, len(rows)))
    first.weight.data /= scales.view(-1, *[1] * (first.weight.ndim - 1))
    if first.bias is not None:
        first.bias.data /= scales
    scale_inputs(second, scales)
    return float((scales - 1).abs().max())
