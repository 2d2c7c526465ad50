"""Quantize: weights and biases in a narrower floating dtype."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import CompressionError
from nncfx.schemes import operators
from nncfx.schemes.layers import layer_parameters, parameter_names, select_layers
from nncfx.schemes.masks import check_level
from nncfx.schemes.scheme import Scheme

__all__ = ["Quantize"]

_KINDS: Final = (nn.Linear, nn.Conv2d)


@dataclass(frozen=True)
class Quantize(Scheme):
    """Casts weights and biases of `nn.Linear` and `nn.Conv2d` layers (subclasses excluded).

    Compressed, they have the narrower dtype, so that the module computes in it; decompressed,
    they have `restore` again and their values stay on the grid of `dtype`. Does not depend
    on the level.

    Attributes:
        dtype: "float16" or "bfloat16" ("float32" and "float64" are known, too), or a torch dtype.
        restore: The dtype that `decompress` gives back.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.

    Raises:
        ArgumentError: a dtype is not known.

    Source: Condensa (Joseph et al. 2020), Table 1.
    """

    dtype: str | torch.dtype = "float16"
    restore: str | torch.dtype = "float32"
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, dtype in (("dtype", self.dtype), ("restore", self.restore)):
            known = operators.float_dtype(dtype)
            object.__setattr__(self, field, str(known).removeprefix("torch."))

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        for layer in select_layers(model, _KINDS, ignored=self.ignored):
            for parameter in layer_parameters([layer], biases=True):
                try:
                    cast = operators.quantize(parameter.detach(), self.dtype)
                except CompressionError as error:
                    raise CompressionError(f"In '{layer.name}': {error}") from error
                _recast(parameter, cast)

    @override
    def decompress(self, model: nn.Module) -> None:
        for parameter in layer_parameters(
            select_layers(model, _KINDS, ignored=self.ignored),
            biases=True,
        ):
            _recast(parameter, operators.dequantize(parameter.detach(), self.restore))

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        layers = select_layers(model, _KINDS, ignored=self.ignored)
        return parameter_names(model, layer_parameters(layers, biases=True))


def _recast(parameter: nn.Parameter, values: torch.Tensor) -> None:
    """Give `parameter` values of another dtype, keeping its identity (it may be shared)."""
    if parameter.dtype != values.dtype:
        parameter.grad = None  # a gradient of the old dtype fits no longer
    parameter.data = values
