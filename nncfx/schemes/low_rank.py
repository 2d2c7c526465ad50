"""LowRank: projects weights to low rank, and splits layers into two thin ones."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import ArgumentError, CompressionError
from nncfx.float64 import in_float64
from nncfx.schemes.layers import (
    CONDENSA_LAYERS,
    Layer,
    kinds_of,
    outputs_first,
    select_layers,
    turned_kinds,
)
from nncfx.schemes.masks.exact_masks import check_at_least, check_level
from nncfx.schemes.weight_scheme import WeightScheme
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.tensors import own_tensors


@dataclass(frozen=True, kw_only=True)
class LowRank(WeightScheme):
    """Projects each weight, an `o x m` matrix of its rows, onto the nearest one of lower rank.

    Nearest in the Euclidean norm: the smallest singular values are dropped. The rank is given, or
    chosen by the energy to keep, or, if neither is set, by the level: the largest rank whose two
    factors have at most the fraction `1 - level` of the weight's entries, at least 1. A weight
    whose shape allows no larger rank is left unchanged, bitwise. Weights keep their shape, and
    hence their footprint; `factorize` splits each into two thin layers.

    Attributes:
        rank: The rank of every weight, at least 1; the level is then ignored.
        energy: The fraction of the sum of squared singular values to keep, in (0, 1]; the level is
            then ignored.

    Raises:
        ArgumentError: rank or energy is out of range, both are given, or a kind is not known.

    Source: Eckart and Young (1936); Denton et al. (2014), Exploiting Linear Structure.
    """

    exact: ClassVar[bool] = True

    rank: int | None = None
    energy: float | None = None
    ignored: tuple[str, ...] = ()
    layers: tuple[str, ...] = CONDENSA_LAYERS

    def __post_init__(self) -> None:
        kinds_of(self.layers)
        if self.rank is not None:
            check_at_least("rank", self.rank, 1)
        if self.energy is not None and not 0 < self.energy <= 1:
            raise ArgumentError(
                f"energy is {self.energy!r}; it is the fraction of the squared singular values "
                "that stays and lies in (0, 1]. Write 0.9 for 90 %."
            )
        if self.rank is not None and self.energy is not None:
            raise ArgumentError(
                f"rank is {self.rank} and energy is {self.energy}; each alone says which rank "
                "a weight has. Give one of them, or none, so that the level says it."
            )

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        for layer in self._layers(model):
            matrix = layer.weight.detach().flatten(1)
            if not torch.isfinite(matrix).all():
                raise CompressionError(
                    f"'{layer.name}.{layer.weight_name}' has entries that are not finite, and so "
                    "no singular values. Train the model to finite weights first."
                )
            with torch.no_grad():
                low = truncate_rank(matrix, self._rank(matrix, level))
                layer.weight.copy_(low.view(layer.weight.shape))

    def _rank(self, matrix: Tensor, level: float) -> int:
        if self.rank is not None:
            return self.rank
        if self.energy is not None:
            return rank_of_energy(torch.linalg.svdvals(in_float64(matrix)), self.energy)
        return rank_of_level((matrix.shape[0], matrix.shape[1]), level)


def rank_of_level(shape: tuple[int, int], level: float) -> int:
    """Return the largest rank whose factors have at most `(1 - level)` of the `o x m` entries.

    At least 1; the full rank at level 0.

    >>> [rank_of_level((64, 64), level) for level in (0, 0.25, 0.5, 0.99)]
    [64, 24, 16, 1]
    """
    rows, columns = shape
    if check_level(level) == 0:
        return min(shape)
    return max(1, math.floor((1 - level) * rows * columns / (rows + columns) + 1e-9))


def rank_of_energy(singular_values: Tensor, energy: float) -> int:
    """Return the least rank at which the largest squared `singular_values` reach `energy`.

    `energy` is a fraction of their sum, in (0, 1]; values descend. At least 1, also for zeros.

    >>> rank_of_energy(torch.tensor([3.0, 2.0, 1.0]), 0.9)
    2
    """
    squares = in_float64(singular_values).square().cumsum(0)
    if energy == 1:
        return max(1, int(torch.count_nonzero(singular_values)))
    return 1 + int((squares < energy * squares[-1]).sum())


def truncate_rank(matrix: Tensor, rank: int) -> Tensor:
    """Return the `o x m` matrix of at most `rank` that is nearest to `matrix`, in its dtype.

    A matrix with no more rows or columns than `rank` is returned unchanged.
    """
    if rank >= min(matrix.shape):
        return matrix
    left, values, right = _svd(matrix)
    return (left[:, :rank] * values[:rank] @ right[:rank]).to(matrix)


def factorize(
    model: nn.Module, *, tolerance: float = 1e-5, ignored: Iterable[str] = ()
) -> nn.Module:
    """Return a copy of `model` with each low-rank layer replaced by two thin layers in a row.

    A linear layer (GPT-2's, too) becomes two of `nn.Linear`; a convolution (of one group) becomes
    a convolution to `rank` channels and a `1 x 1` convolution. A layer is kept if the two would
    have no fewer weights, or if the model shares its weight or reads it by name (a recurrent
    cell). The product of the factors equals the weight up to rounding; names change from
    `fc.weight` to `fc.0.weight`, `fc.1.weight`.

    Args:
        model: A model that `LowRank` compressed; not changed.
        tolerance: Singular values up to this fraction of the largest count as zero.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.

    Raises:
        GraphError: an entry of `ignored` matches no module.
        CompressionError: `model` is wrapped; its weights have hooks that would be lost.
    """
    result = copy_of(model)
    layers = [
        one for one in select_layers(result, _kinds(), exact=True, ignored=ignored) if one.name
    ]
    readers = [id(p) for m in result.modules() for p in m.parameters(recurse=False)]
    for layer in layers:
        if type(layer.module) not in _kinds():
            raise CompressionError(
                f"'{layer.name}' carries hooks of nncfx, which would lose the weight they act "
                "on. Strip the model first: factorize(nncfx.strip(model))."
            )
        if readers.count(id(layer.weight)) == 1 and not _is_grouped(layer.module):
            pair = _pair(layer, tolerance)
            if pair is not None:
                result.set_submodule(layer.name, pair.train(layer.module.training))
    return result


def factorize_again(model: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Insert two thin layers, in place and without values yet, where `shapes` of a file has them.

    Args:
        model: A fresh dense model.
        shapes: Shapes of the tensors after `factorize`, by name; names that fit no layer are
            ignored.
    """
    for name, module in list(model.named_modules()):
        first, second = (shapes.get(f"{name}.{one}.weight", ()) for one in (0, 1))
        if type(module) not in _kinds() or not name:
            continue
        if first and second and 0 < first[0] <= min(_matrix(module).shape):
            pair = nn.Sequential(*_thin_layers(module, first[0]))
            model.set_submodule(name, pair.train(module.training))


def _kinds() -> tuple[type[nn.Module], ...]:
    return nn.Linear, nn.Conv2d, *turned_kinds()


def _matrix(module: nn.Module) -> Tensor:
    """Return the weight, `o x m`."""
    return outputs_first(module, own_tensors(module)["weight"].detach()).flatten(1)


def _is_grouped(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.groups > 1


def _pair(layer: Layer, tolerance: float) -> nn.Sequential | None:
    matrix = _matrix(layer.module)
    left, values, right = _svd(matrix)
    rank = max(1, int((values > tolerance * values[0]).sum()))
    if rank * sum(matrix.shape) >= matrix.numel():
        return None
    root = values[:rank].sqrt()
    first, second = _thin_layers(layer.module, rank)
    with torch.no_grad():
        first.weight.copy_((root[:, None] * right[:rank]).view(first.weight.shape))
        second.weight.copy_((left[:, :rank] * root).view(second.weight.shape))
        if layer.bias is not None and second.bias is not None:
            second.bias.copy_(layer.bias)
    return nn.Sequential(first, second)


def _thin_layers(
    module: nn.Module, rank: int
) -> tuple[nn.Linear, nn.Linear] | tuple[nn.Conv2d, nn.Conv2d]:
    own = own_tensors(module)
    weight, biased = own["weight"], "bias" in own
    device, dtype = weight.device, weight.dtype
    if not isinstance(module, nn.Conv2d):
        outputs, inputs = _matrix(module).shape
        return (
            nn.Linear(inputs, rank, bias=False, device=device, dtype=dtype),
            nn.Linear(rank, outputs, bias=biased, device=device, dtype=dtype),
        )
    first = copy_of(module)
    first.out_channels, first.bias = rank, None
    first.weight = nn.Parameter(weight.new_empty(rank, *weight.shape[1:]))
    second = nn.Conv2d(rank, module.out_channels, 1, bias=biased, device=device, dtype=dtype)
    return first, second


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # double precision, so the truncated part stays below the rounding of the weights
    left, values, right = torch.linalg.svd(in_float64(matrix), full_matrices=False)
    return left, values, right
