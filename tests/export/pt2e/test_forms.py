"""Dequantizations stand where Inductor looks for them, and no value changes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from nncfx.export import export_program
from small_models import Rounding

SCALE = 0.03
GRID = (0, 255)
ZERO = 131

WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "reshape": lambda x: x.flatten(1).unflatten(1, (4, -1)).transpose(1, 2).contiguous(),
    "windows": lambda x: x.roll(1, 2).permute(0, 2, 3, 1)[:, 1:, ::2],
    "picked": lambda x: x[torch.arange(2), torch.tensor([3, 1])],
    "parts": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "padded": lambda x: F.pad(x, (1, 2, 0, 1)),
    "pooled": lambda x: F.max_pool2d(x, 3, 2, 1),
    "shuffled": lambda x: F.pixel_shuffle(F.channel_shuffle(x, 2), 2),
    "larger": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
}
"""Ways from a quantizer to a product that change no value on their way."""


class Moved(nn.Module):
    """A quantized tensor, moved, then read by a linear layer with quantized weights."""

    def __init__(self, way: Callable[[Tensor], Tensor], columns: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.quantizer, self.way = Rounding(SCALE, GRID, zero_point=ZERO), way
        self.head = nn.Linear(columns, 5)
        self.weight_quantizer = Rounding(
            self.head.weight.detach().abs().amax(1) / 127, (-127, 127), axis=0
        )

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight_quantizer(self.head.weight)
        return F.linear(self.way(self.quantizer(x)), weight, self.head.bias)


def image() -> Tensor:
    return torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))


def nodes(program: torch.export.ExportedProgram, name: str) -> list[fx.Node]:
    return [node for node in program.graph.nodes if name in str(node.target)]


def exact(model: nn.Module) -> torch.export.ExportedProgram:
    """Return the program of a model, which computes the same bits."""
    program = export_program(model.eval(), image())
    assert torch.equal(program.module()(image()), model(image()))
    return program


@pytest.mark.parametrize("name", WAYS)
def test_a_layer_reads_a_dequantization_whatever_moves_before_it(name: str) -> None:
    way = WAYS[name]
    model = Moved(way, way(image()).shape[-1]).eval()
    program = export_program(model, image())
    (layer,) = nodes(program, "aten.linear")
    assert "dequantize_per_tensor" in str(layer.args[0].target)
    # a step of one number is some 0.01; laid out in another way, sums have another order
    torch.testing.assert_close(program.module()(image()), model(image()), rtol=0, atol=1e-5)


def test_each_reader_has_a_dequantization_of_its_own() -> None:
    class Three(Moved):
        def forward(self, x: Tensor) -> Tensor:
            y, weight = self.quantizer(x).flatten(2), self.weight_quantizer(self.head.weight)
            return F.linear(y, weight) + F.linear(y, weight, self.head.bias) + y.sum()

    program = exact(Three(WAYS["dropout"], 36))
    reads = nodes(program, "dequantize_per_tensor")
    assert [len(node.users) for node in reads] == [1, 1, 1]
    assert len(nodes(program, "decomposed.quantize_per_tensor")) == 1


@pytest.mark.parametrize(
    ("way", "columns"),
    [
        (lambda x: x.mean(2), 6),
        (lambda x: F.pad(x, (1, 1, 1, 1), value=0.4), 8),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), 8),
    ],
)
def test_what_computes_between_is_left_in_float(
    way: Callable[[Tensor], Tensor], columns: int
) -> None:
    (layer,) = nodes(exact(Moved(way, columns)), "aten.linear")
    assert "dequantize" not in str(layer.args[0].target)


@pytest.mark.parametrize("scale", [SCALE, 0.05])
def test_tensors_are_joined_as_integers_on_one_grid_only(scale: float) -> None:
    other = Rounding(scale, GRID, zero_point=ZERO)
    program = exact(Moved(lambda x: torch.cat([x, other(image().exp())], 1), 6))
    (layer,) = nodes(program, "aten.linear")
    assert ("dequantize" in str(layer.args[0].target)) == (scale == SCALE)


def test_dropout_that_stays_at_work_stays_in_the_program() -> None:
    model = Moved(lambda x: F.dropout(x, 0.5, training=True), 6).eval()
    program = export_program(model, image())
    assert len(nodes(program, "dropout")) == 1


@pytest.mark.parametrize(("scale", "count"), [(SCALE, 1), (2 * SCALE, 2)])
def test_a_tensor_quantized_twice_is_quantized_once_for_each_grid(
    scale: float, count: int
) -> None:
    again = Rounding(scale, GRID, zero_point=ZERO)
    program = exact(Moved(lambda x: again(x.flatten(1)), 144))
    assert len(nodes(program, "decomposed.quantize_per_tensor")) == count


def test_columns_are_stored_as_rows() -> None:
    class Columns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.weight, self.bias = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5))
            scale = self.weight.detach().abs().amax(0) / 127
            self.quantizer = Rounding(SCALE, GRID, zero_point=ZERO)
            self.weight_quantizer = Rounding(scale, (-127, 127), axis=1)

        def forward(self, x: Tensor) -> Tensor:
            rows = self.quantizer(x).flatten(0, 2)
            return torch.addmm(self.bias, rows, self.weight_quantizer(self.weight))

    model = Columns().eval()
    program = export_program(model, image())
    (weight,) = nodes(program, "dequantize_per_channel")
    assert weight.args[3] == 0
    assert [str(one.target) for one in weight.users] == ["aten.t.default"]
    torch.testing.assert_close(program.module()(image()), model(image()), rtol=0, atol=1e-5)
