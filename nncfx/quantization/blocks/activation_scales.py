"""AWQ: give the weights that read large activations a finer grid, by scales folded elsewhere."""

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
"""Of a weight, by which the scales are chosen."""

ScaledGroup = tuple[LayerGroup, list[Tensor]]
"""Layers, and the parameters that make what they read: rows are its channels."""


def scalable_groups(block: nn.Module, found: BlockLayers) -> list[ScaledGroup]:
    """Return the groups whose inputs some parameters scale, which nothing else reads."""
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
    """Return what to multiply the layers' inputs' weights by, i, so that rounding changes least.

    The scales are powers of the inputs' root mean squares; the exponent of 0, 0.1, ..., 1 with the
    least change of the outputs is taken. The layers read the same, of which `moments` are i x i.

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
    """Multiply the layers' weights and divide what makes their inputs, channel by channel."""
    for tensor in producers:
        tensor.div_(scales.to(tensor.dtype).view(-1, *[1] * (tensor.ndim - 1)))
    for layer in group.layers:
        scale_inputs(layer, scales.to(layer.weight.dtype))
