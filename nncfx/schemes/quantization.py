"""Quantize: rounds weights to a narrower dtype."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import CompressionError
from nncfx.schemes import operators
from nncfx.schemes.layers import (
    CONDENSA_LAYERS,
    Layer,
    kinds_of,
    layer_parameters,
    parameter_names,
)
from nncfx.schemes.masks.exact_masks import check_level
from nncfx.schemes.weight_scheme import WeightScheme

_INT8 = "int8"


@dataclass(frozen=True)
class Quantize(WeightScheme):
    """Rounds the layers of the chosen kinds (subclasses included) to a narrower dtype.

    With a floating dtype, compressed weights and biases have that dtype and the module computes in
    it; `decompress` converts them back to `restore`, and their values stay on the grid of `dtype`.

    With "int8", weights are rounded to `operators.int8_grid`, with one step per output channel
    (per input of a linear layer whose columns are the outputs, as in files), and keep their dtype,
    since no module computes with bare integers; biases do not change. Does not depend on the
    level.

    Attributes:
        dtype: "float16", "bfloat16" or "int8" (also "float32" and "float64"), or a torch dtype.
        restore: The dtype after `decompress`, for a floating dtype.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.
        layers: Kinds of layers, by their names in `LAYER_KINDS`.

    Raises:
        ArgumentError: a dtype or a kind of layer is unknown.

    Source: Condensa (Joseph et al. 2020), Table 1.
    """

    dtype: str | torch.dtype = "float16"
    restore: str | torch.dtype = "float32"
    ignored: tuple[str, ...] = ()
    layers: tuple[str, ...] = CONDENSA_LAYERS

    def __post_init__(self) -> None:
        kinds_of(self.layers)
        for field, dtype in (("dtype", self.dtype), ("restore", self.restore)):
            name = str(dtype).removeprefix("torch.")
            if field == "restore" or name != _INT8:
                name = str(operators.float_dtype(dtype)).removeprefix("torch.")
            object.__setattr__(self, field, name)

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        for layer in self._layers(model):
            for parameter in self._parameters([layer]):
                try:
                    rounded = self._rounded(parameter.detach())
                except CompressionError as error:
                    raise CompressionError(f"In '{layer.name}': {error}") from error
                _recast(parameter, rounded)

    @override
    def decompress(self, model: nn.Module) -> None:
        if self.dtype == _INT8:
            return
        for parameter in self._parameters(self._layers(model)):
            _recast(parameter, operators.dequantize(parameter.detach(), self.restore))

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        return parameter_names(model, self._parameters(self._layers(model)))

    def _parameters(self, layers: Iterable[Layer]) -> Iterator[nn.Parameter]:
        return layer_parameters(layers, biases=self.dtype != _INT8)

    def _rounded(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.dtype == _INT8:
            return operators.int8_grid(tensor)
        return operators.quantize(tensor, self.dtype)


def _recast(parameter: nn.Parameter, values: torch.Tensor) -> None:
    """Set values of another dtype in `parameter`, keeping its identity (it may be shared)."""
    if parameter.dtype != values.dtype:
        parameter.grad = None  # a gradient of the old dtype no longer fits
    parameter.data = values
