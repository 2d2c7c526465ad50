"""Which layers compute in INT8, on networks drawn by hand."""

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


def found(*layers: Layer) -> QuantizedLayers:
    network = SimpleNamespace(num_layers=len(layers), get_layer=lambda number: layers[number])
    return quantized_layers(network)


PAIR = (
    Layer("q", "QUANTIZE", ("x",)),
    Layer("dq", "DEQUANTIZE", ("q",)),
    Layer("w", "DEQUANTIZE", ("constant",)),
)


def test_a_convolution_that_reads_two_pairs_is_in_int8() -> None:
    assert found(*PAIR, Layer("c", "CONVOLUTION", ("dq", "w"))).int8 == ("c",)


def test_a_convolution_that_holds_its_weight_is_floating() -> None:
    assert found(Layer("c", "CONVOLUTION", ("x", None))).floating == ("c",)


def test_a_product_with_one_pair_is_half_quantized() -> None:
    assert found(*PAIR, Layer("m", "MATRIX_MULTIPLY", ("x", "w"))).half == ("m",)


def test_a_transposed_weight_is_still_quantized() -> None:
    turned = Layer("t", "SHUFFLE", ("w",))
    assert found(*PAIR, turned, Layer("m", "MATRIX_MULTIPLY", ("dq", "t"))).int8 == ("m",)


def test_an_activation_between_pair_and_product_ends_the_int8() -> None:
    relu = Layer("r", "ACTIVATION", ("dq",))
    assert found(*PAIR, relu, Layer("m", "MATRIX_MULTIPLY", ("r", "w"))).half == ("m",)


def test_a_bias_is_no_factor() -> None:
    assert found(*PAIR, Layer("c", "CONVOLUTION", ("dq", "w", "bias"))).int8 == ("c",)


def test_other_layers_are_not_counted() -> None:
    assert found(*PAIR) == QuantizedLayers((), (), ())


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
