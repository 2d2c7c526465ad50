"""What layers keep, said by a caller."""

import copy

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, GraphError
from nncfx.reorder.kept_inputs import keep_inputs
from small_models import Function


class Fork(nn.Module):
    """One producer and two consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.left, self.right = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.left(x) + self.right(x)


def fork() -> Fork:
    torch.manual_seed(0)
    return Fork().double()


def image() -> torch.Tensor:
    return torch.ones(1, 3, 4, 4, dtype=torch.float64)


def test_only_what_is_not_kept_becomes_zero() -> None:
    model = fork()
    kept = keep_inputs(model, image(), {"left": [1, 6], "right": torch.arange(8) > 0})
    assert kept.left.weight.ne(0).any(dim=(0, 2, 3)).nonzero().flatten().tolist() == [1, 6]
    assert torch.equal(kept.left.weight[:, [1, 6]], model.left.weight[:, [1, 6]])
    assert kept.right.weight.ne(0).any(dim=(0, 2, 3)).tolist() == [False] + [True] * 7


@pytest.mark.parametrize(
    ("keeps", "message"),
    [
        ({"left": []}, r"keeps\['left'\] keeps nothing"),
        ({"left": torch.zeros(8, dtype=torch.bool)}, "keeps nothing"),
        ({"left": torch.ones(7, dtype=torch.bool)}, r"shape \(7,\), but the layer has 8"),
        ({"left": [8]}, "holds channel 8, but the layer has 8 input"),
        ({"left": [-1]}, "channel ids start at 0"),
        ({"left": ["a"]}, "a channel is named by its integer id"),
    ],
)
def test_keeps_that_no_layer_can_have_are_refused(keeps: dict, message: str) -> None:
    model = fork()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ArgumentError, match=message):
        keep_inputs(model, image(), keeps)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_a_layer_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(GraphError, match=r"No layer 'lefft'.*Did you mean 'left'\?"):
        keep_inputs(fork(), image(), {"lefft": [0]})


def test_a_channel_that_is_an_input_of_the_model_cannot_go() -> None:
    model = Function(
        lambda m, x: m.b(torch.cat([m.a(x), x], 1)), a=nn.Conv2d(3, 3, 1), b=nn.Conv2d(6, 3, 1)
    ).double()
    with pytest.raises(ArgumentError, match=r"keeps\['b'\] leaves out channel 4, which cannot go"):
        keep_inputs(model, image(), {"b": [0, 1, 2, 3, 5]})
    kept = keep_inputs(model, image(), {"b": [1, 3, 4, 5]})
    assert kept.b.weight.ne(0).flatten(1).all(0).tolist() == [False, True, False, True, True, True]
