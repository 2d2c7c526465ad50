"""Cluster: the weights of each layer share a few values."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.schemes.kmeans import kmeans_1d, nearest
from nncfx.schemes.layers import layer_parameters, parameter_names, select_layers
from nncfx.schemes.masks import check_level
from nncfx.schemes.scheme import Scheme

__all__ = ["Cluster"]

_KINDS: Final = (nn.Linear, nn.Conv2d)
_MOST_BITS: Final = 8


@dataclass(frozen=True)
class Cluster(Scheme):
    """Rounds each layer's non-zero weights to a codebook of its own, found by k-means.

    Covers `nn.Linear` and `nn.Conv2d` (subclasses excluded). Of the `2 ** bits` codes one is zero:
    pruned weights stay zero, so that Cluster composes with pruning, and the others share the
    remaining `2 ** bits - 1` values. Biases are untouched, the dtype stays. A layer that has no
    more values than that is left as it is. Does not depend on the level.

    Attributes:
        bits: Bits of a code, from 1 to 8.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.

    Raises:
        ArgumentError: `bits` is out of range.

    Source: Han et al. (2016), Deep Compression, section 3.
    """

    bits: int = 5
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.bits not in range(1, _MOST_BITS + 1):
            raise ArgumentError(
                f"bits is {self.bits!r}; a code has 1 to {_MOST_BITS} bits. Deep Compression uses "
                "8 for convolutions and 5 for linear layers.",
            )

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        for layer in select_layers(model, _KINDS, ignored=self.ignored):
            with torch.no_grad():
                alive = layer.weight != 0
                values = layer.weight[alive]
                if values.numel():
                    codebook = kmeans_1d(values, 2**self.bits - 1)
                    layer.weight[alive] = codebook[nearest(values, codebook)]

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        layers = select_layers(model, _KINDS, ignored=self.ignored)
        return parameter_names(model, layer_parameters(layers, biases=False))
