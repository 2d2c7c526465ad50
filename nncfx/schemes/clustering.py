"""Cluster: the weights of each layer share a few values."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.schemes.kmeans import kmeans_1d, nearest
from nncfx.schemes.layers import CONDENSA_LAYERS, kinds_of
from nncfx.schemes.masks.exact_masks import check_at_least, check_level
from nncfx.schemes.weight_scheme import WeightScheme

_MOST_BITS: Final = 8


@dataclass(frozen=True)
class Cluster(WeightScheme):
    """Rounds the non-zero weights of each layer to a codebook found by k-means.

    Covers layers of the chosen kinds (subclasses included). One of the `2 ** bits` codes is zero:
    pruned weights stay zero, so Cluster composes with pruning, and all other weights share the
    remaining `2 ** bits - 1` values. Biases and the dtype do not change. A layer with no more
    distinct values than that is left unchanged. Does not depend on the level.

    Attributes:
        bits: Bits of a code, from 1 to 8.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.
        layers: Kinds of layers, by their names in `LAYER_KINDS`.

    Raises:
        ArgumentError: `bits` is out of range, or a kind of layer is not known.

    Source: Han et al. (2016), Deep Compression, section 3.
    """

    bits: int = 5
    ignored: tuple[str, ...] = ()
    layers: tuple[str, ...] = CONDENSA_LAYERS

    def __post_init__(self) -> None:
        kinds_of(self.layers)
        check_at_least("bits", self.bits, 1)
        if self.bits > _MOST_BITS:
            raise ArgumentError(
                f"bits is {self.bits!r}; a code has 1 to {_MOST_BITS} bits. Deep Compression uses "
                "8 for convolutions and 5 for linear layers."
            )

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        for layer in self._layers(model):
            with torch.no_grad():
                alive = layer.weight != 0
                values = layer.weight[alive]
                if values.numel():
                    codebook = kmeans_1d(values, 2**self.bits - 1)
                    layer.weight[alive] = codebook[nearest(values, codebook)]
