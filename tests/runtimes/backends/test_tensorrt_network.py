"""Which layers compute in INT8, on networks drawn by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.backends.tensorrt_network import (
    QuantizedLayers,
    check_quantized,
    quantized_layers,
)


@dataclass
class Layer:
    """As much of TensorRT's ILayer as is read."""

    name: str
    kind: str
    reads: tuple[str | None, ...] = ()
    num_outputs: int = 1
    type: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.type = SimpleNamespace(name=self.kind)

    @property
    def num_inputs(self) -> int:
        return len(self.reads)

    def get_input(self, port: int) -> SimpleNamespace | None:
        name = self.reads[port]
        return None if name is None else SimpleNamespace(name=name)

    def get_output(self, _: int) -> SimpleNamespace:
        return SimpleNamespace(name=self.name)


def product(*reads: str) -> Layer:
    return Layer("m", "MATRIX_MULTIPLY", reads)


PAIR = (
    Layer("q", "QUANTIZE", ("x",)),
    Layer("dq", "DEQUANTIZE", ("q",)),
    Layer("w", "DEQUANTIZE", ("constant",)),
)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([*PAIR, Layer("c", "CONVOLUTION", ("dq", "w"))], {"int8": ("c",)}),
        ([*PAIR, Layer("c", "CONVOLUTION", ("dq", "w", "bias"))], {"int8": ("c",)}),
        ([*PAIR, Layer("t", "SHUFFLE", ("w",)), product("dq", "t")], {"int8": ("m",)}),
        ([*PAIR, product("x", "w")], {"half": ("m",)}),
        ([*PAIR, Layer("r", "ACTIVATION", ("dq",)), product("r", "w")], {"half": ("m",)}),
        ([Layer("c", "CONVOLUTION", ("x", None))], {"floating": ("c",)}),
        (PAIR, {}),
    ],
    ids=["two pairs", "bias", "transposed", "one pair", "activation", "own weight", "others"],
)
def test_a_layer_is_in_int8_where_it_reads_pairs_at_both_factors(
    layers: Sequence[Layer], expected: dict[str, tuple[str, ...]]
) -> None:
    network = SimpleNamespace(num_layers=len(layers), get_layer=lambda number: layers[number])
    none = {"int8": (), "half": (), "floating": ()}
    assert quantized_layers(network) == QuantizedLayers(**none | expected)


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        (QuantizedLayers((), ("h",), ("f",)), "paired"),  # weights alone are quantized
        (QuantizedLayers(("i",), (), ("f",)), "paired"),
        (QuantizedLayers(("i",), ("h",), ()), "any"),
        (QuantizedLayers(("i",), (), ()), "all"),
    ],
)
def test_what_is_as_wanted_passes(layers: QuantizedLayers, wanted: str) -> None:
    check_quantized(layers, wanted)


def test_half_quantized_layers_among_others_are_refused() -> None:
    layers = QuantizedLayers(("i",), ("a", "b", "c", "d", "e"), ())
    message = "5 layer.s., 'a', 'b', 'c' and 2 more, read a Q/DQ pair at one factor only"
    with pytest.raises(RuntimeFailure, match=message):
        check_quantized(layers, "paired")


def test_all_means_all() -> None:
    with pytest.raises(RuntimeFailure, match="'f', do not read Q/DQ pairs at both factors"):
        check_quantized(QuantizedLayers(("i",), (), ("f",)), "all")
