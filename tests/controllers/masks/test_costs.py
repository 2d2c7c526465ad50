"""What masks save of multiply-accumulates and of parameters."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from nncfx.controllers.masks.costs import WeightCosts
from nncfx.tracing import trace


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 5))


def counted() -> WeightCosts:
    model = net()
    return WeightCosts.in_macs(model, trace(model, torch.ones(1, 3, 6, 6)))


def test_macs_are_divided_among_the_weights() -> None:
    conv, linear = 4 * 3 * 9 * 16, 64 * 5
    assert counted() == WeightCosts(
        unit="multiply-accumulates",
        by_weight={"0.weight": conv, "2.weight": linear},
        total=conv + linear,
    )


def test_weights_that_one_operation_reads_divide_its_macs() -> None:
    """Of 5 steps of 2 sequences; an LSTM has four rows for each of its 3 units."""
    model = nn.LSTM(4, 3)
    costs = WeightCosts.in_macs(model, trace(model, torch.ones(5, 2, 4)))
    weights = {"weight_ih_l0": 10 * 12 * 4, "weight_hh_l0": 10 * 12 * 3}
    assert costs.by_weight == weights
    assert costs.total == sum(weights.values())
    assert costs.saved({name: torch.tensor(data=False) for name in weights}) == 1


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_of_no_width_costs_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 3))
    costs = WeightCosts.in_macs(model, trace(model, torch.ones(5, 4)))
    assert (costs.by_weight, costs.total) == ({"0.weight": 0, "1.weight": 0}, 0)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_rows_of_a_normed_weight_go_with_their_lengths(
    norm: Callable[[nn.Module], nn.Module],
) -> None:
    """Half of 8 rows and 1 of 4 columns: of 32 entries and products each, 12 stay."""
    model = nn.Sequential(norm(nn.Linear(4, 8)))
    graph = trace(model, torch.ones(5, 4))
    rows, columns = torch.arange(8).view(8, 1) < 4, torch.arange(4).view(1, 4) < 3
    bias, length, weight = dict(model.named_parameters())
    masks = {length: rows, weight: columns, bias: rows.flatten()}
    in_macs = WeightCosts.in_macs(model, graph)
    assert (in_macs.total, in_macs.saved(masks)) == (5 * 32, pytest.approx(20 / 32))
    in_parameters = WeightCosts.in_parameters(model, graph)
    assert in_parameters.saved(masks) == pytest.approx((20 + 4 + 4) / (32 + 8 + 8))


def test_masks_save_in_proportion_to_what_they_remove() -> None:
    macs = counted()
    half = torch.tensor([1, 1, 0, 0]).view(4, 1, 1, 1).bool()
    assert macs.saved({"0.weight": half, "0.bias": half}) == pytest.approx(
        0.5 * macs.by_weight["0.weight"] / macs.total
    )


def test_parameters_are_counted_with_biases() -> None:
    half = torch.tensor([1, 1, 0, 0]).bool()
    model = net()
    costs = WeightCosts.in_parameters(model, trace(model, torch.ones(1, 3, 6, 6)))
    assert costs.total == 4 * 27 + 4 + 64 * 5 + 5
    removed = {"0.weight": half.view(4, 1, 1, 1), "0.bias": half}
    assert costs.saved(removed) == pytest.approx((2 * 27 + 2) / costs.total)


def test_a_shared_parameter_counts_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    graph = trace(model, torch.ones(1, 4))
    assert WeightCosts.in_parameters(model, graph).total == 16 + 4 + 4


def test_a_model_without_macs_saves_nothing() -> None:
    assert WeightCosts(unit="multiply-accumulates", by_weight={}, total=0).saved({}) == 0
