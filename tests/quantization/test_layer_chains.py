"""Layers of a model, and what reads them."""

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.quantization.layer_chains import (
    find_layers,
    reader_behind,
    readers,
    shared_parameters,
)
from nncfx.tracing import trace

IMAGES = torch.zeros(2, 3, 8, 8)


class Various(nn.Module):
    """A layer called once, one called twice, two with one weight, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tied, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.tied.weight
        self.matrix = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.twice(self.once(x)))
        return nn.functional.linear(self.other(self.tied(x)), self.matrix)


def test_only_layers_whose_parameters_are_their_own_are_found() -> None:
    model = Various()
    found = find_layers(model, trace(model, torch.zeros(2, 4)))
    assert [one.name for one in found.values()] == ["once"]


def test_parameters_with_several_readers_are_shared_by_any_name() -> None:
    model = Various()
    assert shared_parameters(model, trace(model, torch.zeros(2, 4))) == {
        *("twice.weight", "twice.bias", "tied.weight", "other.weight")
    }


def test_a_root_that_is_a_layer_is_found() -> None:
    model = nn.Linear(4, 2)
    assert [
        one.module for one in find_layers(model, trace(model, torch.zeros(2, 4))).values()
    ] == [model]


def test_the_stored_weight_is_read_past_the_hooks() -> None:
    model = nncfx.wrap(nn.Sequential(nn.Linear(4, 2)), torch.zeros(2, 4))
    (layer,) = find_layers(model, model.nncf.graph).values()
    assert layer.weight is dict(model.named_parameters())["0.weight"]


@pytest.mark.parametrize(
    ("between", "seen"),
    [
        ([nn.ReLU()], True),
        ([nn.ReLU(), nn.Flatten()], True),
        ([nn.Flatten(2)], False),
        ([nn.Sigmoid()], False),
    ],
)
def test_a_reader_is_seen_through_what_leaves_channels_in_place(
    between: list[nn.Module], *, seen: bool
) -> None:
    last = nn.Softmax(1)
    graph = trace(nn.Sequential(nn.Conv2d(3, 4, 1), *between, last), IMAGES)
    found = reader_behind(graph, graph.operations[0], {"relu", "flatten"})
    assert (found is graph.operations[-1]) is seen


def test_the_model_output_is_a_reader_without_an_operation() -> None:
    graph = trace(nn.Conv2d(3, 4, 1), IMAGES)
    assert list(readers(graph, graph.addresses[0])) == [None]
