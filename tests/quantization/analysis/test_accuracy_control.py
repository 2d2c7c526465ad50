"""Layers that hurt, left in float."""

import itertools
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nncfx.errors import ArgumentError, CompressionError
from nncfx.quantization.analysis.accuracy_control import _fewest, quantize_with_accuracy_control

HURT = "Sequential/Linear[2]/linear_0"


def data() -> Tensor:
    return torch.randn(64, 6, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    """Return a network whose second layer does not survive: one weight of each row is large.

    It does nothing, as its input is always 0, but for all others the grid is too coarse.
    """
    torch.manual_seed(0)
    layers = (nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    model = nn.Sequential(*layers).eval()
    model[0].weight.data[0], model[0].bias.data[0] = 0, 0
    model[2].weight.data[:, 0] = 1000
    return model


EXACT = network()(data()).detach()


def closeness(model: nn.Module) -> float:
    """Return how near the outputs are to those in float, at most 1."""
    with torch.no_grad():
        return 1 - float((model(data()) - EXACT).abs().mean())


def test_the_layer_that_hurts_stays_in_float_and_the_budget_is_kept() -> None:
    found = quantize_with_accuracy_control(network(), [data()], closeness, max_drop=0.06)
    assert [address for address, _ in found.float_layers] == [HURT]
    assert found.metric >= found.reference - 0.06
    assert closeness(found.model) == found.metric
    assert not any("2.weight" in str(one.site) for one in found.model.nncf.hooks)


def test_what_is_inside_the_budget_at_once_is_quantized_as_a_whole() -> None:
    found = quantize_with_accuracy_control(network(), [data()], closeness, max_drop=10.0)
    assert found.float_layers == ()
    assert [one.float_layers for one in found.attempts] == [0]


def test_it_says_what_stays_in_float_and_what_was_tried() -> None:
    found = quantize_with_accuracy_control(network(), [data()], closeness, max_drop=0.06)
    first, second, last = str(found).splitlines()
    assert first.endswith("in float 1; 1 layers in float")
    assert second.startswith(f"  {HURT}: ")
    assert last.startswith("tried (layers in float: metric): 0: 0.")


def test_options_of_quantize_are_passed_on() -> None:
    found = quantize_with_accuracy_control(
        network(), [data()], closeness, max_drop=10.0, weight_bits=4, ignored_scopes=[HURT]
    )
    sites = {str(one.site): one.hook for one in found.model.nncf.hooks}
    assert "2.weight" not in sites
    assert sites["0.weight"].spec.bits == 4


def test_a_budget_that_cannot_be_kept_is_told_with_the_best_metric() -> None:
    values = itertools.chain([1.0], itertools.repeat(0.25))
    with pytest.raises(
        CompressionError, match=r"1 in float and at most 0.25 quantized, even with 2 of 3 layers"
    ):
        quantize_with_accuracy_control(network(), [data()], lambda _: next(values), max_drop=0.5)


@pytest.mark.parametrize("budget", [-0.1, float("nan")])
def test_a_negative_budget_is_refused(budget: float) -> None:
    with pytest.raises(ArgumentError, match="how much the metric may lose"):
        quantize_with_accuracy_control(network(), [data()], closeness, max_drop=budget)


@given(st.integers(1, 60), st.integers(0, 70))
def test_the_fewest_layers_are_found_in_logarithmically_many_steps(needed: int, most: int) -> None:
    calls = []

    def is_enough(count: int) -> bool:
        calls.append(count)
        return count >= needed

    assert _fewest(is_enough, most) == (needed if needed <= most else -1)
    assert all(1 <= count <= most for count in calls)
    assert len(calls) <= 2 * max(most, 1).bit_length()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "evaluate returned a NoneType that is not a number. Return the metric"),
        (torch.zeros(3), "evaluate returned a Tensor that is not a number"),
        (float("nan"), "evaluate returned nan for the model in float"),
    ],
)
def test_what_is_no_metric_is_refused(returned: object, message: str) -> None:
    def evaluate(_: nn.Module) -> float:
        return cast("float", returned)

    with pytest.raises(ArgumentError, match=message):
        quantize_with_accuracy_control(network(), [data()], evaluate, max_drop=0.1)


def test_a_metric_may_be_a_tensor_of_one_number() -> None:
    def evaluate(_: nn.Module) -> float:
        return cast("float", torch.tensor([0.5]))

    result = quantize_with_accuracy_control(network(), [data()], evaluate, max_drop=0)
    assert (result.metric, type(result.reference)) == (0.5, float)
