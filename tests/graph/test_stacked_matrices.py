"""Experts' matrices lie in one parameter; weight-only quantization takes them."""

import logging
from pathlib import Path
from typing import Literal

import onnx
import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.graph.stacked_matrices import stacked_matrices
from nncfx.quantization import quantize_weights
from onnx_files import assert_file_agrees

CHOSEN = torch.tensor([2, 0, 2, 1, 3])


class Experts(nn.Module):
    """Five tokens, each through an expert of its own; outputs first (up) and last (down)."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.up = nn.Parameter(torch.randn(4, 48, 32, generator=generator) / 6)
        self.down = nn.Parameter(torch.randn(4, 48, 32, generator=generator) / 6)
        self.head = nn.Linear(32, 32)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        hidden = torch.bmm(self.up[chosen], x.unsqueeze(-1)).squeeze(-1).relu()
        y: Tensor = self.head(torch.bmm(hidden.unsqueeze(1), self.down[chosen]).squeeze(1))
        return y


class OneByOne(Experts):
    """The same as a loop over the experts writes it."""

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        rows = []
        for place, expert in enumerate(chosen.tolist()):
            hidden = nn.functional.linear(x[place : place + 1], self.up[expert]).relu()
            rows.append(nn.functional.linear(hidden, self.down[expert].transpose(0, 1)))
        y: Tensor = self.head(torch.cat(rows))
        return y


class Grouped(nn.Module):
    """Tokens sorted by expert, and one product for all."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4, 32, 48).bfloat16())
        self.down = nn.Parameter(torch.randn(4, 32, 48).bfloat16())

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        hidden = nn.functional.grouped_mm(x, self.up, offs=ends)
        return nn.functional.grouped_mm(hidden, self.down.transpose(1, 2), offs=ends)


class Others(nn.Module):
    """What are no experts: stacks read whole, or added, and rows that are picked from a table."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Parameter(torch.randn(4, 8, 8))
        self.shifts = nn.Parameter(torch.randn(4, 8, 8))
        self.turned = nn.Parameter(torch.randn(4, 8, 8))
        self.table = nn.Parameter(torch.randn(9, 8))

    def forward(self, x: Tensor) -> Tensor:
        picked = x @ self.table[torch.arange(8)]
        picked = picked @ self.heads @ self.turned.transpose(1, 2)
        return picked + self.shifts[torch.tensor([1])]


def inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 32, generator=torch.Generator().manual_seed(1)), CHOSEN


@pytest.mark.parametrize("kind", [Experts, OneByOne])
def test_the_axis_of_outputs_is_found_however_experts_are_called(kind: type[Experts]) -> None:
    graph = nncfx.wrap(kind(), inputs()).nncf.graph
    assert stacked_matrices(graph) == {"up": 1, "down": 2}


def test_the_axis_of_outputs_is_found_in_grouped_products() -> None:
    x, ends = torch.randn(8, 32).bfloat16(), torch.tensor([1, 3, 4, 8], dtype=torch.int32)
    assert stacked_matrices(nncfx.wrap(Grouped(), (x, ends)).nncf.graph) == {"up": 2, "down": 1}


def test_stacks_that_are_no_experts_are_left() -> None:
    assert stacked_matrices(nncfx.wrap(Others(), torch.ones(4, 8, 8)).nncf.graph) == {}


def test_each_output_of_each_expert_has_a_scale_of_its_own() -> None:
    model = quantize_weights(Experts(), example_inputs=inputs())
    for name, inner in (("up", 2), ("down", 1)):
        weight = dict(model.named_parameters())[name].detach()
        step = weight.abs().amax(inner, keepdim=True) / 127
        expected = (weight / step).round() * step
        torch.testing.assert_close(model.nncf.weight(name), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("bits", "group"), [(8, None), (4, 16), (8, 16)])
@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
def test_experts_are_stored_in_integers_and_picked_from_them(
    bits: Literal[4, 8], group: int | None, target: str, tmp_path: Path
) -> None:
    x = inputs()
    model = quantize_weights(
        Experts(), example_inputs=x, bits=bits, group_size=group, ignored_scopes=["{re}head"]
    )
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", x, target).path
    stored = {one.name: one for one in onnx.load(path).graph.initializer}
    floats = [
        one.name
        for one in stored.values()
        if one.data_type == onnx.TensorProto.FLOAT
        and len(one.dims) == 3
        and one.dims[1:] == [48, 32]
    ]
    assert floats == []
    # the products are in float: what is left is the order of sums
    assert_file_agrees(path, model, x, target, atol=2e-6, rtol=0)


def test_whole_rows_are_dequantized_only_where_they_are_picked(tmp_path: Path) -> None:
    model = quantize_weights(Experts(), example_inputs=inputs())
    graph = onnx.load(nncfx.export_onnx(model, tmp_path / "m.onnx", inputs()).path).graph
    assert "DequantizeLinear" not in [node.op_type for node in graph.node]


def test_what_stays_in_float_is_told_with_its_share(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.LayerNorm([6, 6]), nn.Flatten(), nn.Linear(36, 1))
    with caplog.at_level(logging.WARNING):
        quantize_weights(model, example_inputs=torch.ones(1, 6, 6))
    # twice 36 of 36 + 36 + 36 + 1
    told = "66.1 % of the model's values in float: '0.weight' (layer_norm), '0.bias' (layer_norm)."
    assert told in caplog.text


def test_nothing_is_told_where_everything_is_quantized_or_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = nn.Sequential(nn.Linear(8, 10), nn.Linear(10, 4))
    with caplog.at_level(logging.INFO):
        quantize_weights(model, example_inputs=torch.ones(1, 8), ignored_scopes=["{re}\\[1\\]"])
    assert "leaves" not in caplog.text
