"""Determines which layers of a network parsed by TensorRT will compute in INT8."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nncfx.errors import RuntimeFailure, shortened

_PRODUCTS: Final = ("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY")
# Layers that move numbers without computing: TensorRT passes INT8 through them.
_MOVES: Final = ("SHUFFLE", "IDENTITY", "SQUEEZE", "UNSQUEEZE", "SLICE")


@dataclass(frozen=True)
class QuantizedLayers:
    """The convolutions and matrix products of a network, by their inputs.

    Attributes:
        int8: both factors come from a Q/DQ pair; these compute in INT8.
        half: only one factor does; these compute in floating point.
        floating: neither does.
    """

    int8: tuple[str, ...]
    half: tuple[str, ...]
    floating: tuple[str, ...]


def quantized_layers(network: Any) -> QuantizedLayers:  # noqa: ANN401 (the package has no types)
    """Return the inputs of each convolution and matrix product of `network`, classified.

    A weight that the layer itself holds, not as an input, counts as floating point.
    """
    layers = [network.get_layer(number) for number in range(network.num_layers)]
    makers = {
        layer.get_output(port).name: layer for layer in layers for port in range(layer.num_outputs)
    }
    found: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for layer in layers:
        if layer.type.name in _PRODUCTS:
            ports = range(min(2, layer.num_inputs))
            pairs = sum(_is_dequantized(layer.get_input(port), makers) for port in ports)
            found[pairs].append(layer.name)
    return QuantizedLayers(int8=tuple(found[2]), half=tuple(found[1]), floating=tuple(found[0]))


def check_quantized(layers: QuantizedLayers, wanted: str) -> None:
    """Refuse a network whose INT8 layers differ from `wanted`.

    `"paired"`: no layer is half quantized if others are in INT8; `"all"`: every convolution and
    matrix product is in INT8; `"any"`: no check (weights alone can be quantized).

    Raises:
        RuntimeFailure: the network differs; the message names the layers.
    """
    if wanted == "paired" and layers.int8 and layers.half:
        raise RuntimeFailure(
            f"{_named(layers.half)} read a Q/DQ pair at one factor only, so they would not "
            "compute in INT8 as the others do. Quantize both the input and the weight of each, "
            "or neither; settings=(('int8', 'any'),) builds it as it is."
        )
    missed = layers.half + layers.floating
    if wanted == "all" and missed:
        raise RuntimeFailure(
            f"{_named(missed)} do not read Q/DQ pairs at both factors, and "
            "settings=(('int8', 'all'),) wants every convolution and matrix product in INT8. "
            "Quantize them, or leave the setting out."
        )


def _is_dequantized(tensor: Any, makers: Mapping[str, Any]) -> bool:  # noqa: ANN401 (no types)
    """Return whether `tensor` comes from a DQ whose input is quantized or an 8-bit constant."""
    while tensor is not None and tensor.name in makers:
        layer = makers[tensor.name]
        if layer.type.name == "DEQUANTIZE":
            return True
        if layer.type.name not in _MOVES:
            return False
        tensor = layer.get_input(0)
    return False


def _named(names: tuple[str, ...]) -> str:
    shown = shortened([f"'{name}'" for name in names])
    return f"{len(names)} layer(s), {shown},"
