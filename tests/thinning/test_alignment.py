"""Widths suit the runtime that a model is thinned for."""

import pytest
import torch
from torch import nn

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
