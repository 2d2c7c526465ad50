"""AWQ: scale weights that read large activations to a finer grid, and fold the inverse scales."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from nncfx.quantization.blocks.block_layers import BlockLayers, LayerGroup
from nncfx.quantization.blocks.weight_formats import fitted_grid, format_spec
from nncfx.quantization.grid.fake_quantize import fake_quantize
from nncfx.quantization.preparation.equalization import scale_inputs
from nncfx.quantization.preparation.layer_chains import Layer
from nncfx.quantization.preparation.smooth_quant import smoothable

_SHARES: Final = tuple(number / 10 for number in range(1, 11))
_ROWS: Final = 512
"""About how many rows of a weight are used to choose scales."""

ScaledGroup = tuple[LayerGroup, list[Tensor]]
"""Layers, and the parameters that produce their inputs, with the channels on axis 0."""


def scalable_groups(block: nn.Module, found: BlockLayers) -> list[ScaledGroup]:
    """Return the groups whose inputs can be scaled by parameters and have no other readers."""
    producers: Mapping[frozenset[str], list[Tensor]] = {
        frozenset(one.name for one in layers): scaled
        for _, scaled, layers in smoothable(block, found.graph)
    }
    names = {id(group): frozenset(one.name for one in group.layers) for group in found.groups}
    return [
        (group, producers[names[id(group)]])
        for group in found.groups
        if names[id(group)] in producers
    ]


@torch.no_grad()
def best_scales(
    layers: Sequence[Layer], moments: Tensor, format_name: str, group_size: int | None
) -> Tensor:
    """Return the factors, i, for the weights of each input that minimise the rounding error.

    The factors are powers of the inputs' root mean squares; the exponents 0, 0.1, ..., 1 are tried
    for the least change of the outputs. All layers read the same tensor, with `moments` of i x i.

    Source: Lin et al. 2024, AWQ, equations 4 and 5.
    """
    magnitudes = moments.diagonal().clamp(min=0).sqrt()
    magnitudes = magnitudes.clamp(min=float(magnitudes.max()) * 1e-4 or 1.0)
    weights = torch.cat([one.rows.float()[:: max(len(one.rows) // _ROWS, 1)] for one in layers])
    spec = format_spec(format_name, group_size, weights.shape[1])

    def error(scales: Tensor) -> float:
        scaled = weights * scales
        grid = fitted_grid(scaled, spec, moments.diagonal() / scales.square())
        change = fake_quantize(scaled, *grid, spec) / scales - weights
        return float(((change @ moments) * change).sum())

    best = torch.ones_like(magnitudes)
    least = error(best)
    for share in _SHARES:
        scales = magnitudes**share
        scales = scales / (scales.max() * scales.min()).sqrt()
        found = error(scales)
        if found < least:
            best, least = scales, found
    return best


@torch.no_grad()
def scale_group(group: LayerGroup, producers: Sequence[Tensor], scales: Tensor) -> None:
    """Multiply the layers' weights and divide the producers of their inputs, per channel."""
    for tensor in producers:
        tensor.div_(scales.to(tensor.dtype).view(-1, *[1] * (tensor.ndim - 1)))
    for layer in group.layers:
        scale_inputs(layer, scales.to(layer.weight.dtype))
