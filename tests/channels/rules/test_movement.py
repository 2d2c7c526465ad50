"""Moving elements keeps channels apart, or fixes those that it cannot keep apart."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Channels

Operation = Callable[[torch.Tensor], torch.Tensor]


class Between(nn.Module):
    """A convolution, an operation on its 4 channels of 6 x 6 pixels, and a convolution."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 1)
        self.operation = operation
        self.head = nn.LazyConv2d(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.operation(self.stem(x)))


def analyse(operation: Operation, batch: int = 2) -> Channels:
    model, image = Between(operation), torch.zeros(batch, 3, 6, 6)
    model(image)
    return analyze_channels(model, image)


def columns(channels: Channels) -> list[list[int]]:
    return next(m for m in channels.find("stem").members if m.axis == 1).indices.tolist()


def with_zeros(x: torch.Tensor, index: tuple[slice | int, ...]) -> torch.Tensor:
    x = x.clone()
    x[index] = 0.0
    return x


EACH_ON_ITS_OWN = [[0], [1], [2], [3]]

KEPT: dict[str, Operation] = {
    "identity": lambda x: x,
    "permute and back": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "transpose pixels": lambda x: x.transpose(2, 3),
    "flatten pixels and back": lambda x: x.flatten(2).view(2, -1, 6, 6),
    "crop pixels": lambda x: x[:, :, 1:-1, ::2],
    "ellipsis": lambda x: x[..., :3],
    "first image": lambda x: x[:1],
    "split pixels": lambda x: x.split(3, dim=2)[1],
    "pad pixels": lambda x: F.pad(x, (1, 1, 2, 2)),
    "reflect pixels": lambda x: F.pad(x, (1, 1, 2, 2), mode="reflect"),
    "crop by padding": lambda x: F.pad(x, (-1, 0, 0, -2)),
    "roll pixels": lambda x: x.roll(2, dims=3),
    "flip pixels": lambda x: x.flip(2),
    "stack and mean": lambda x: torch.stack([x, 2 * x]).mean(0),
    "concatenate pixels": lambda x: torch.cat([x, x], 2),
    "half and back": lambda x: x.half().float(),
    "expand": lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 6, 6),
    "squeeze": lambda x: x.mean((2, 3), keepdim=True).squeeze(3).unsqueeze_(3),
    "assign to pixels": lambda x: with_zeros(x, (slice(None), slice(None), 0)),
}


@pytest.mark.parametrize("name", KEPT)
def test_channels_stay_apart(name: str) -> None:
    found = analyse(KEPT[name])
    assert found.find("stem").fixed is None
    assert columns(found) == EACH_ON_ITS_OWN


FIXED: dict[str, tuple[Operation, str]] = {
    "channel slice": (lambda x: x[:, 1:], "takes some channels by their position"),
    "roll": (lambda x: x.roll(1, dims=1), "takes some channels by their position"),
    "flip": (lambda x: x.flip(1), "takes some channels by their position"),
    "uneven split": (lambda x: x.split([1, 3], 1)[1], "takes some channels by their position"),
    "unbind": (lambda x: torch.stack(x.unbind(1), 1), "takes some channels by their position"),
    "crop channels": (
        lambda x: F.pad(x, (0, 0, 0, 0, -1, 0)),
        "changes the channels themselves",
    ),
    "select by own values": (
        lambda x: x.gather(1, x.argsort(1)),
        "computes across its channels",
    ),
    "assign to a channel": (
        lambda x: with_zeros(x, (slice(None), 0)),
        "writes some channels by their position",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_channels_taken_by_position_are_fixed_with_the_reason(name: str) -> None:
    operation, reason = FIXED[name]
    assert reason in (analyse(operation).find("stem").fixed or "")


def test_chunks_tie_their_channels_one_to_one() -> None:
    found = analyse(lambda x: torch.mul(*x.chunk(2, 1)))
    assert [m.indices.tolist() for m in found.find("stem").members] == [
        [[0, 2], [1, 3]],
        [[0, 2], [1, 3]],
        [[0], [1]],
    ]


def test_a_gated_linear_unit_ties_value_and_gate() -> None:
    found = analyse(lambda x: F.glu(x, 1))
    assert found.find("stem").members[0].indices.tolist() == [[0, 2], [1, 3]]


def test_pixel_shuffle_ties_the_channels_of_a_pixel_block() -> None:
    found = analyse(lambda x: F.pixel_shuffle(x.repeat_interleave(2, 1), 2))
    assert found.find("stem").members[0].indices.tolist() == [[0, 1], [2, 3]]
    assert columns(found) == [[0], [1]]


def test_padding_of_channels_adds_columns_that_no_group_has() -> None:
    assert columns(analyse(lambda x: F.pad(x, (0, 0, 0, 0, 2, 1)))) == [[2], [3], [4], [5]]


def test_channels_folded_into_the_batch_are_fixed_as_an_output() -> None:
    found = analyse(lambda x: x.reshape(8, 1, 6, 6))
    assert found.find("stem").fixed == "an output of the model"


def test_what_is_written_to_all_channels_ties_them_to_those_of_the_place() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        other = x.flip(2).clone()
        other[:, :, 0] = x[:, :, 1]
        return other

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
            self.head = nn.Conv2d(4, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            place = self.one(x).clone()
            place[:, :, 0] = self.two(x)[:, :, 1]
            return self.head(place)

    assert columns(analyse(written)) == EACH_ON_ITS_OWN
    members = analyze_channels(Two(), torch.zeros(2, 3, 6, 6)).find("one").members
    assert {m.parameter for m in members} >= {"one.weight", "two.weight", "head.weight"}
