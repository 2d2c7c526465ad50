"""Small networks and channels by hand that the scheme tests share."""

import numpy as np
import pytest
import torch
from torch import nn

from nncfx.graph.channels import Channels, GroupSet, Member, Role


@pytest.fixture
def convnet() -> nn.Sequential:
    """A convolutional network with a norm, two convolutions and two linear layers."""
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, padding=1),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 20),
        nn.ReLU(),
        nn.Linear(20, 4),
    )
    with torch.no_grad():
        model[1].weight.uniform_(0.5, 1.5)
        model[1].bias.uniform_(-1, 1)
    return model.eval()


@pytest.fixture
def convnet_channels() -> Channels:
    """The channels of `convnet`, written out by hand."""

    def member(parameter: str, axis: int, indices: np.ndarray, role: Role) -> Member:
        buffer = "running" in parameter
        return Member(parameter=parameter, axis=axis, indices=indices, role=role, is_buffer=buffer)

    def single(n: int) -> np.ndarray:
        return np.arange(n).reshape(n, 1)

    first = (
        member("0.weight", 0, single(8), Role.PRODUCER),
        member("0.bias", 0, single(8), Role.PRODUCER),
        *(
            member(f"1.{name}", 0, single(8), Role.FOLLOWER)
            for name in ("weight", "bias", "running_mean", "running_var")
        ),
        member("3.weight", 1, single(8), Role.CONSUMER),
    )
    second = (
        member("3.weight", 0, single(12), Role.PRODUCER),
        member("3.bias", 0, single(12), Role.PRODUCER),
        member("6.weight", 1, np.arange(48).reshape(12, 4), Role.CONSUMER),
    )
    third = (
        member("6.weight", 0, single(20), Role.PRODUCER),
        member("6.bias", 0, single(20), Role.PRODUCER),
        member("8.weight", 1, single(20), Role.CONSUMER),
    )
    last = (
        member("8.weight", 0, single(4), Role.PRODUCER),
        member("8.bias", 0, single(4), Role.PRODUCER),
    )
    return Channels(
        (
            GroupSet(name="0", size=8, members=first),
            GroupSet(name="3", size=12, members=second),
            GroupSet(name="6", size=20, members=third),
            GroupSet(name="8", size=4, members=last, fixed="the model's output"),
        )
    )
