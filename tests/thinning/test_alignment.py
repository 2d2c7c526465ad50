"""Widths suit the runtime that a model is thinned for."""

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.schemes.masks.alignment import resolve_alignment
from nncfx.targets import names
from nncfx.thinning import thin


@pytest.mark.parametrize(
    ("runtime", "dead", "left"),
    [
        ("onnxruntime", 10, 48),  # 38 are alive, so 32 are too few
        ("onnxruntime", 32, 16),
        ("onnxruntime", 43, 8),  # 5 are alive: below 16 in steps of 4
        ("onnxruntime", 47, 4),
        ("tensorrt", 30, 24),
        ("tensorrt", 47, 8),
        ("tensorrt-int8", 47, 32),
    ],
)
def test_widths_suit_the_runtime(runtime: str, dead: int, left: int) -> None:
    model = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 2))
    model[2].weight.data[:, :dead] = 0
    width = thin(model, torch.ones(1, 3), align=runtime).model[0].out_features
    assert width == left


@pytest.mark.parametrize("runtime", names("alignment"))
def test_no_runtime_allows_a_layer_of_nothing(runtime: str) -> None:
    assert not resolve_alignment(runtime).allows(0)


def test_an_unknown_runtime_is_refused_with_the_nearest() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ArgumentError, match="Did you mean 'tensorrt'"):
        thin(model, torch.ones(1, 2), align="tensort")


class Grouped(nn.Module):
    """Experts as one product for all, whose kernel takes rows that are 16 bytes apart."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: torch.Tensor
        torch.manual_seed(0)
        self.embed = nn.Linear(8, 24)
        self.up = nn.Parameter(torch.randn(2, 2 * 20, 24) / 5)
        self.down = nn.Parameter(torch.randn(2, 24, 20) / 5)
        self.head = nn.Linear(24, 3)
        self.register_buffer("ends", torch.tensor([2, 6], dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        both = nn.functional.grouped_mm(x, self.up.transpose(1, 2), offs=self.ends)
        gate, value = both.chunk(2, dim=-1)
        hidden = gate.sigmoid() * value
        return self.head(
            nn.functional.grouped_mm(hidden, self.down.transpose(1, 2), offs=self.ends)
        )


def test_channels_go_to_a_width_that_the_call_takes_which_reads_them() -> None:
    _, model = nncfx.create_compressed_model(
        Grouped().eval(),
        {
            "compression": {
                "algorithm": "structure_pruning",
                "pruning_init": 0.3,
                "params": {"align": 1},
            }
        },
        torch.randn(6, 8),
    )
    result = thin(model)
    # of 20 hidden channels 14 would stay, of 24 embedded ones 17: the next multiples of 4
    assert result.model.up.shape == (2, 2 * 16, 20)
    assert result.model.down.shape[2] == 16
    assert not result.fixed


@pytest.mark.parametrize("side", ["input", "output"])
def test_layers_that_choose_for_themselves_keep_what_the_call_takes(side: str) -> None:
    params = {"constrained": False, "pruning_side": side, "align": 1}
    item = {"algorithm": "structure_pruning", "pruning_init": 0.3, "params": params}
    controller, model = nncfx.create_compressed_model(
        Grouped().eval(), {"compression": item}, torch.randn(6, 8)
    )
    counts = {one.name: one.after for one in controller.statistics().channels}
    assert {name: counts[name] for name in ("up", "down")} == (
        {"up": 20, "down": 16} if side == "input" else {"up": 16, "down": 17}
    )
    result = thin(model)
    assert result.model.up.shape == (2, 2 * 16, 20)
    assert not result.fixed


def test_dead_channels_stay_for_the_width_that_a_call_takes() -> None:
    model = Grouped().eval()
    model.down.data[:, :, :5] = 0
    result = thin(model, torch.randn(6, 8))
    assert result.model.down.shape[2] == 16
    assert result.fixed == {"up": "1 dead kept: a call that reads them takes multiples of 4"}
