"""Functions of elements, windows and axes keep channels apart, or fix them."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Channels

IMAGE = torch.zeros(2, 3, 6, 6)
Operation = Callable[["Between", torch.Tensor], torch.Tensor]


class Between(nn.Module):
    """A convolution, an operation on its 4 channels of 6 x 6 pixels, and a convolution."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.one = nn.Conv2d(3, 1, 1)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.position = nn.Parameter(torch.ones(6, 6))
        self.both = nn.Parameter(torch.ones(4, 6, 6))
        self.layer = nn.LayerNorm([4, 6, 6])
        self.rows = nn.LayerNorm(6)
        self.group = nn.GroupNorm(2, 4)
        self.instance = nn.InstanceNorm2d(4, affine=True)
        self.operation = operation
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.image = x
        return self.head(self.operation(self, self.stem(x)))


def analyse(operation: Operation) -> Channels:
    return analyze_channels(Between(operation), IMAGE)


KEPT: dict[str, Operation] = {
    "relu": lambda _, x: F.relu(x),
    "in-place relu": lambda _, x: F.relu(x, inplace=True),
    "number": lambda _, x: 1.0 - x / 2,
    "in-place sum": lambda _, x: x.add_(x),
    "one constant": lambda _, x: x * torch.tensor(2.0),
    "constant per pixel": lambda _, x: x * torch.ones(6, 6),
    "like": lambda _, x: torch.where(x > 0, x, torch.zeros_like(x)),
    "clamp": lambda _, x: x.clamp(min=0),
    "one broadcast channel": lambda m, x: x * torch.sigmoid(m.one(m.image)),
    "pool": lambda _, x: F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 6),
    "resize": lambda _, x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "softmax over pixels": lambda _, x: x.flatten(2).softmax(-1).view_as(x),
    "mean over pixels": lambda _, x: x - x.mean((2, 3), keepdim=True),
    "norm over pixels": lambda _, x: x / x.norm(2, dim=(2, 3), keepdim=True),
    "maximum over pixels": lambda _, x: x + x.max(dim=3, keepdim=True).values,
    "layer norm over pixels": lambda m, x: m.rows(x),
    "position parameter": lambda m, x: x + m.position,
    "matrix over pixels": lambda _, x: F.linear(x, torch.ones(6, 6)),
}


@pytest.mark.parametrize("name", KEPT)
def test_channels_stay_apart(name: str) -> None:
    found = analyse(KEPT[name]).find("stem")
    assert (found.fixed, found.size) == (None, 4)


FREED = "over its channels (living_norms allows removing them)"
FIXED: dict[str, tuple[Operation, str]] = {
    "constant per channel": (
        lambda _, x: x * torch.ones(4, 1, 1),
        "a constant of the model's code takes the place",
    ),
    "softmax": (lambda _, x: x.softmax(1), "computes across its channels"),
    "mean": (lambda _, x: x - x.mean(1, keepdim=True), "computes across its channels"),
    "mean of all": (lambda _, x: x - x.mean(), "computes across its channels"),
    "layer norm": (lambda m, x: m.layer(x), f"normalises {FREED}"),
    "group norm of all": (lambda _, x: F.group_norm(x, 1), f"normalises {FREED}"),
    "local response": (lambda _, x: F.local_response_norm(x, 3), "normalises over its channels"),
    "the image itself": (lambda m, x: x + F.pad(m.image, [0] * 5 + [1]), "an input of the model"),
}


@pytest.mark.parametrize("name", FIXED)
def test_mixed_channels_are_fixed_with_the_reason(name: str) -> None:
    operation, reason = FIXED[name]
    found = analyse(operation).fixed
    assert any(why.startswith(reason) or why.endswith(reason) for why in found.values())
    assert "stem" in found


@pytest.mark.parametrize(
    ("operation", "followers"),
    [
        (lambda m, x: x * m.scale, {"scale": 0}),
        (lambda m, x: x + m.both.unsqueeze(0), {"both": 0}),
        (lambda m, x: x * torch.sigmoid(m.scale.view(-1))[:, None, None], {"scale": 0}),
        (lambda m, x: m.instance(x), {"instance.weight": 0, "instance.bias": 0}),
    ],
    ids=["scale", "scale per pixel", "moved scale", "instance norm"],
)
def test_a_parameter_per_channel_follows(operation: Operation, followers: dict[str, int]) -> None:
    found = analyse(operation).find("stem")
    entries = {m.parameter: m.axis for m in found.members if m.role == "follower"}
    assert entries == followers
    assert found.fixed is None


def test_a_channel_that_is_broadcast_over_others_is_fixed() -> None:
    found = analyse(lambda m, x: x * m.one(m.image))
    assert found.fixed["one"] == "'Between/__mul___0' broadcasts it over other channels"


def test_class_token_and_positions_follow_the_width() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 4, 2, stride=2)
            self.token = nn.Parameter(torch.zeros(1, 1, 4))
            self.positions = nn.Parameter(torch.zeros(1, 10, 4))
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
            return self.head(x[:, 0])

    found = analyze_channels(Tokens(), IMAGE).find("patches")
    assert found.fixed is None
    assert {m.parameter: m.axis for m in found.members if m.role == "follower"} == {
        "token": 2,
        "positions": 2,
    }
