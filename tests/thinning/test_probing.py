"""Widths that code holds are found by trial."""

import copy

import torch
from torch import nn

from nncfx.thinning import prunable_channels

ROWS = torch.ones(2, 3)


class Block(nn.Module):
    """Holds a width in its code, not in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 6), nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x).reshape(-1, 6)))


def stack() -> nn.Module:
    return nn.Sequential(Block(), nn.ReLU(), Block(), nn.Linear(3, 2))


def test_what_the_failing_operation_reads_is_fixed_and_nothing_else() -> None:
    channels = prunable_channels(stack(), ROWS)
    assert {one.name for one in channels.prunable} == {
        "0.second",
        "0.third",
        "2.second",
        "2.third",
    }


def test_counterparts_in_other_blocks_are_fixed_with_the_same_reason() -> None:
    fixed = prunable_channels(stack(), ROWS).fixed
    assert fixed["0.first"] == fixed["2.first"]
    assert fixed["0.first"].startswith("'Sequential/Block[0]/reshape_0' fails without some")


def test_the_model_stays_as_it_was() -> None:
    model = stack()
    before = copy.deepcopy(model.state_dict())
    prunable_channels(model, ROWS)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_width_computed_from_two_that_change_alike_is_not_taken_for_free() -> None:
    class Heads(nn.Module):
        """Divides the width of its input by its number of heads to get that of a head."""

        def __init__(self) -> None:
            super().__init__()
            self.heads = 4
            self.stem, self.qkv = nn.Linear(3, 12), nn.Linear(12, 12)
            self.out = nn.Linear(12, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            heads = self.qkv(x).view(len(x), self.heads, x.shape[-1] // self.heads)
            weights = (heads @ heads.mT).softmax(-1)
            return self.out((weights @ heads).flatten(1))

    assert prunable_channels(Heads(), ROWS).prunable == ()
