"""Unstructured and block pruning: Condensa's Prune and BlockPrune."""

from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError, CompressionError
from nncfx.schemes import operators
from nncfx.schemes.layers import CONDENSA_LAYERS, Layer, kinds_of
from nncfx.schemes.masks.criteria import Criterion, resolve_criterion
from nncfx.schemes.masks.exact_masks import check_level
from nncfx.schemes.weight_scheme import WeightScheme


@dataclass(frozen=True, kw_only=True)
class Prune(WeightScheme):
    """Unstructured pruning: zeroes the smallest weights of the whole model.

    All layers of the chosen kinds (subclasses included) share one threshold: the `floor((1 -
    level) * n)`-th largest magnitude of their n weights; weights equal to it are kept. Biases and
    other layers do not change. A whole layer may become zero.

    Attributes:
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.
        layers: Kinds of layers, by their names in `LAYER_KINDS`; by default Condensa's.

    Raises:
        ArgumentError: a kind of layer is unknown.

    Source: Condensa (Joseph et al. 2020), Table 1.
    """

    ignored: tuple[str, ...] = ()
    layers: tuple[str, ...] = CONDENSA_LAYERS

    def __post_init__(self) -> None:
        kinds_of(self.layers)

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        layers = _of_own_weights(self.require_layers(model))
        if check_level(level) == 0:
            return
        magnitudes = torch.cat([layer.weight.detach().flatten() for layer in layers])
        limit = operators.threshold(magnitudes, operators.level_to_density(level))
        with torch.no_grad():
            for layer in layers:
                layer.weight.copy_(operators.prune(layer.weight, limit))


@dataclass(frozen=True)
class BlockPrune(WeightScheme):
    """Block pruning: zeroes the weakest blocks of weights of the whole model.

    The blocks of all layers of the chosen kinds (subclasses included) share one threshold, as in
    `Prune`. Biases do not change.

    Attributes:
        criteria: Reduces the weights of a block to its score.
        bs: Extents of a block, one for each axis of the weight; or one number for all axes.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.
        layers: Kinds of layers, by their names in `LAYER_KINDS`; by default linear, as Condensa.

    Raises:
        ArgumentError: the block size, the criterion or a kind of layer is invalid.

    Source: Condensa (Joseph et al. 2020), Table 1.
    """

    criteria: Criterion = "l2norm"
    bs: int | tuple[int, ...] = 4
    ignored: tuple[str, ...] = ()
    layers: tuple[str, ...] = ("linear",)

    def __post_init__(self) -> None:
        resolve_criterion(self.criteria)
        kinds_of(self.layers)
        extents = (self.bs,) if isinstance(self.bs, int) else self.bs
        if not extents or min(extents) < 1:
            raise ArgumentError(
                f"bs is {self.bs!r}; a block has an extent of at least 1 along every axis of the "
                "weight. Write bs=(1, 4), or bs=4 for 4 x 4."
            )

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        layers = _of_own_weights(self.require_layers(model))
        if check_level(level) == 0:
            return
        scores = [self._scores(layer) for layer in layers]
        limit = operators.threshold(torch.cat(scores), operators.level_to_density(level))
        with torch.no_grad():
            for layer in layers:
                block = self._block(layer)
                pruned = operators.blockprune(layer.weight, limit, block, self.criteria)
                layer.weight.copy_(pruned)

    def _block(self, layer: Layer) -> tuple[int, ...]:
        return (self.bs,) * layer.weight.ndim if isinstance(self.bs, int) else self.bs

    def _scores(self, layer: Layer) -> torch.Tensor:
        block = self._block(layer)
        shape, name = tuple(layer.weight.shape), f"{layer.name}.{layer.weight_name}"
        if len(block) != len(shape) or any(n % b for n, b in zip(shape, block, strict=True)):
            raise CompressionError(
                f"Blocks of {block} do not tile '{name}' of {shape}; each "
                f"extent must divide the weight's. Choose divisors, or ignored=('{layer.name}',)."
            )
        return operators.block_scores(layer.weight.detach(), block, self.criteria).flatten()


def _of_own_weights(layers: list[Layer]) -> list[Layer]:
    """Return `layers`, only the first of those that share a weight (embedding and decoder)."""
    return list({id(layer.weight): layer for layer in reversed(layers)}.values())[::-1]
