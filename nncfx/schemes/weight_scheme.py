"""Schemes that constrain the weights of layers of chosen kinds."""

from typing import ClassVar

from torch import nn
from typing_extensions import override

from nncfx.errors import CompressionError
from nncfx.schemes.layers import (
    Layer,
    kinds_in,
    kinds_of,
    layer_parameters,
    parameter_names,
    select_layers,
    turned_kinds,
)
from nncfx.schemes.scheme import Scheme


class WeightScheme(Scheme):
    """A scheme of weights; biases and layers of other kinds do not change.

    Attributes:
        ignored: Dotted names of modules to leave alone, or `{re}` patterns.
        layers: Kinds of layers, by their names in `LAYER_KINDS`.
        exact: Whether subclasses of layers are left alone.
    """

    ignored: tuple[str, ...]
    layers: tuple[str, ...]
    exact: ClassVar[bool] = False

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        return parameter_names(model, layer_parameters(self._layers(model), biases=False))

    def require_layers(self, model: nn.Module) -> list[Layer]:
        """Return the layers of `model` that the scheme compresses.

        Raises:
            CompressionError: there is none.
        """
        layers = self._layers(model)
        if not layers:
            raise CompressionError(
                f"{self!r} finds no layer that it could compress, so every level would give the "
                f"same model. The kinds of layers here are {kinds_in(model)}. Check `layers` and "
                "`ignored`, or choose another scheme."
            )
        return layers

    def _layers(self, model: nn.Module) -> list[Layer]:
        kinds = kinds_of(self.layers)
        if nn.Linear in kinds:
            kinds += turned_kinds()
        return select_layers(model, kinds, exact=self.exact, ignored=self.ignored)
