"""Masks of layers that each choose their own channels."""

import numpy as np
import pytest
import torch
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, CompressionError
from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.schemes import CRITERIA, Ranking, kept_units, unconstrained_masks
from nncfx.tracing import trace
from small_models import Function


class Fork(nn.Module):
    """Two producers that are added, and two consumers, one of them behind a flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.two = nn.Conv2d(3, 4, 1)
        self.conv = nn.Conv2d(4, 3, 3)
        self.fc = nn.Linear(4 * 9, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.one(x)) + self.two(x)
        return self.conv(y), self.fc(y.flatten(1))


INPUTS = torch.randn(1, 3, 3, 3, generator=torch.Generator().manual_seed(0))


def made() -> tuple[Fork, Channels, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Fork()
    return model, analyze_channels(model, INPUTS), dict(model.named_parameters())


def weigh(parameter: torch.Tensor, axis: int, values: list[float]) -> None:
    with torch.no_grad():
        shape = [-1 if one == axis else 1 for one in range(parameter.dim())]
        each = torch.tensor(values).repeat_interleave(parameter.shape[axis] // len(values))
        parameter.copy_(each.view(shape).expand(parameter.shape))


def test_each_consumer_keeps_the_columns_that_weigh_most() -> None:
    _, channels, weights = made()
    weigh(weights["conv.weight"], 1, [4, 3, 2, 1])
    weigh(weights["fc.weight"], 1, [1, 2, 3, 4])
    masks = unconstrained_masks(channels, weights, 0.5)
    assert set(masks) == {"conv.weight", "fc.weight"}
    assert masks["conv.weight"].flatten().tolist() == [True, True, False, False]
    # a channel is nine pixels after the flatten
    assert masks["fc.weight"].flatten().tolist() == [False] * 18 + [True] * 18


def test_producers_lose_rows_biases_and_the_norm_that_only_they_feed() -> None:
    model, channels, weights = made()
    weigh(weights["one.weight"], 0, [4, 3, 2, 1])
    weigh(weights["two.weight"], 0, [1, 4, 3, 1])
    graph = trace(model, INPUTS)
    masks = unconstrained_masks(channels, weights, 0.5, Ranking(side="output"), graph=graph)
    kept = {name: mask.flatten().tolist() for name, mask in masks.items()}
    one, two = [True, True, False, False], [False, True, True, False]
    assert kept["one.weight"] == kept["one.bias"] == one
    assert kept["norm.weight"] == kept["norm.bias"] == one
    assert kept["two.weight"] == kept["two.bias"] == two
    # channel 3 has lost both producers
    assert kept["conv.weight"] == [True, True, True, False]
    assert kept["fc.weight"] == [True] * 27 + [False] * 9


def test_a_norm_that_has_another_reader_before_it_stays() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        x = m.conv(x)
        return m.head(x + m.norm(x))

    model = Function(
        forward, conv=nn.Conv2d(3, 4, 1), norm=nn.BatchNorm2d(4), head=nn.Conv2d(4, 2, 1)
    )
    masks = unconstrained_masks(
        analyze_channels(model, INPUTS),
        dict(model.named_parameters()),
        0.5,
        Ranking(side="output"),
        graph=trace(model, INPUTS),
    )
    assert set(masks) == {"conv.weight", "conv.bias", "head.weight"}


def test_level_zero_masks_nothing() -> None:
    _, channels, weights = made()
    assert unconstrained_masks(channels, weights, 0.0) == {}


@pytest.mark.parametrize("criterion", sorted(CRITERIA))
@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("scope", ["local", "global"])
def test_counts_are_exact_with_every_importance(criterion: str, side: str, scope: str) -> None:
    model, channels, weights = made()
    ranking = Ranking(side=side, criterion=criterion, scope=scope)  # type: ignore[arg-type]  # by name
    masks = unconstrained_masks(channels, weights, 0.5, ranking, graph=trace(model, INPUTS))
    counts = kept_units(channels, weights, masks, ranking.side)
    assert [before for before, _ in counts.values()] == [4, 4]
    assert sum(after for _, after in counts.values()) == 4


def test_gradients_rank_where_they_are_given() -> None:
    _, channels, weights = made()
    products = {name: torch.zeros_like(one) for name, one in weights.items()}
    weigh(products["conv.weight"], 1, [0, 5, 0, -7])
    ranking = Ranking(criterion=lambda blocks: blocks.sum(dim=1).abs())
    masks = unconstrained_masks(channels, weights, 0.5, ranking, scored=products)
    assert masks["conv.weight"].flatten().tolist() == [False, True, False, True]


def test_columns_of_a_set_that_could_only_go_as_a_whole_go_one_by_one() -> None:
    rows = np.arange(4).reshape(1, 4)
    members = tuple(
        Member(parameter=name, axis=axis, indices=rows, role=role)
        for name, axis, role in (("a", 0, Role.PRODUCER), ("b", 1, Role.CONSUMER))
    )
    channels = Channels((GroupSet(name="a", size=1, members=members),))
    weights = {"a": torch.ones(4, 3), "b": torch.tensor([[1.0, 4.0, 3.0, 2.0]])}
    masks = unconstrained_masks(channels, weights, 0.5)
    assert masks["b"].tolist() == [[False, True, True, False]]


def test_a_side_that_does_not_exist_is_refused() -> None:
    _, channels, weights = made()
    with pytest.raises(ArgumentError, match=r"side is 'inside'.*'input'.*'output'"):
        unconstrained_masks(channels, weights, 0.5, Ranking(side="inside"))  # type: ignore[arg-type]  # the fault


def test_the_output_side_asks_for_the_graph() -> None:
    _, channels, weights = made()
    with pytest.raises(ArgumentError, match="there is no graph"):
        unconstrained_masks(channels, weights, 0.5, Ranking(side="output"))


def test_a_model_without_consumers_has_nothing_to_mask() -> None:
    model = nn.Linear(3, 2)
    channels = analyze_channels(model, torch.zeros(1, 3))
    with pytest.raises(CompressionError, match="an output of the model"):
        unconstrained_masks(channels, dict(model.named_parameters()), 0.5)


def test_nan_has_no_rank() -> None:
    _, channels, weights = made()
    weights["conv.weight"].data[0, 0] = float("nan")
    with pytest.raises(CompressionError, match=r"'conv\.weight' gives NaN scores"):
        unconstrained_masks(channels, weights, 0.5)
