"""Ranges from data: of weights, of activations, of several processes."""

from typing import Any

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import CompressionError
from nncfx.network import NNCFNetwork
from nncfx.quantization import Quantizer, QuantizerSpec, RangeRequest, plan_quantizers
from nncfx.quantization.placement.insertions import insertions_of, place_quantizers
from nncfx.quantization.ranges.calibration import calibrate, first_examples, weight_range
from nncfx.targets import hardware_named
from small_models import Function

WEIGHT = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))
ALL = RangeRequest(method="min_max")


def prepared() -> tuple[NNCFNetwork, list[Quantizer]]:
    model = nncfx.wrap(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), torch.ones(1, 3))
    plan = plan_quantizers(model.nncf.graph, hardware_named("onnxruntime"))
    return model, place_quantizers(model, plan)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_weight_has_a_range_for_each_index_of_its_axis(axis: int) -> None:
    low, high = weight_range(WEIGHT, ALL, QuantizerSpec(axis=axis))
    others = [one for one in range(3) if one != axis]
    assert torch.equal(low, WEIGHT.amin(others))
    assert torch.equal(high, WEIGHT.amax(others))


def test_a_weight_without_an_axis_has_one_range() -> None:
    low, high = weight_range(WEIGHT, ALL, QuantizerSpec())
    assert (low, high) == (WEIGHT.min(), WEIGHT.max())


def test_a_weight_in_groups_has_a_range_for_each() -> None:
    _, high = weight_range(WEIGHT, ALL, QuantizerSpec(group=2))
    assert torch.equal(high, WEIGHT.reshape(-1, 2).amax(1))


@pytest.mark.parametrize("method", ["mixed_min_max", "mean_min_max", "mean_percentile"])
def test_means_over_examples_are_extremes_for_a_weight(method: Any) -> None:  # noqa: ANN401
    found = weight_range(WEIGHT, RangeRequest(method=method), QuantizerSpec(axis=0))
    for one, other in zip(found, weight_range(WEIGHT, ALL, QuantizerSpec(axis=0)), strict=True):
        assert torch.equal(one, other)


def test_other_methods_are_applied_channel_by_channel() -> None:
    spec, request = QuantizerSpec(axis=0, bits=3), RangeRequest(method="mse")
    _, high = weight_range(WEIGHT, request, spec)
    single = [weight_range(row, request, spec.replace(axis=None))[1] for row in WEIGHT]
    assert torch.equal(high, torch.stack(single))


@pytest.mark.parametrize(("count", "taken"), [(1, [0]), (50, [0]), (51, [0, 2]), (900, [0, 2, 3])])
def test_whole_batches_come_until_there_are_enough_examples(count: int, taken: list[int]) -> None:
    batches = [torch.zeros(length, 2) for length in (50, 0, 40, 10)]
    assert [id(one) for one in first_examples(batches, count)] == [id(batches[i]) for i in taken]


def test_a_batch_of_no_examples_changes_nothing() -> None:
    torch.manual_seed(0)
    model, batch = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.randn(4, 3, 8, 8)
    alone, with_empty = (
        nncfx.quantize(model, batches)(batch) for batches in ([batch], [batch, batch[:0]])
    )
    assert torch.equal(alone, with_empty)


def test_processes_that_see_other_data_get_the_same_ranges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = [torch.randn(4, 3) * scale for scale in (1, 5, 2, 7)]
    model, placed = prepared()
    calibrate(model, placed, data, lambda _: RangeRequest())
    gathered: list[Any] = []
    # the first process's statistics are kept, the second merges them with its own
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)

    def first(_: list[Any], mine: Any) -> None:  # noqa: ANN401 (torch's)
        gathered[:] = [mine]
        raise InterruptedError

    other, others = prepared()
    monkeypatch.setattr(torch.distributed, "all_gather_object", first)
    with pytest.raises(InterruptedError):
        calibrate(other, others, data[:2], lambda _: RangeRequest())

    def second(into: list[Any], mine: Any) -> None:  # noqa: ANN401 (torch's)
        into[:] = [gathered[0], mine]

    monkeypatch.setattr(torch.distributed, "all_gather_object", second)
    other.load_state_dict(model.state_dict())
    calibrate(other, others, data[2:], lambda _: RangeRequest())
    assert torch.equal(others[0].scale, placed[0].scale)
    assert torch.equal(others[0].zero_point, placed[0].zero_point)


def test_a_tensor_that_calibration_never_reached_is_an_error() -> None:
    layers = Function(
        lambda m, x: m.one(x) if len(x) == 1 else m.two(x.tanh()),
        one=nn.Linear(3, 3),
        two=nn.Linear(3, 3),
    )
    model = nncfx.wrap(layers, torch.ones(1, 3), further_inputs=[torch.ones(2, 3)])
    placed = place_quantizers(
        model, plan_quantizers(model.nncf.graph, hardware_named("onnxruntime"))
    )
    with pytest.raises(CompressionError, match=r"Nothing passed 'Function/tanh_0"):
        calibrate(model, placed, [torch.ones(1, 3)], lambda _: RangeRequest())


def test_a_shared_weight_has_one_quantizer_at_each_of_its_readers() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nncfx.wrap(nn.Sequential(first, second), torch.ones(1, 3))
    plan = plan_quantizers(model.nncf.graph, hardware_named("onnxruntime"))
    weights = [one for one in place_quantizers(model, plan) if one.planned.role == "weight"]
    assert len(weights) == 1
    assert [str(one.site) for one in insertions_of(weights)] == ["0.weight", "1.weight"]


def test_a_computed_weight_has_the_range_of_its_values_in_float() -> None:
    """What quantizers on the way to it give before they have ranges is nothing."""
    summed = Function(
        lambda m, x: nn.functional.linear(x, m.one.clone() + m.other.clone()),
        one=nn.Parameter(torch.ones(2, 3)),
        other=nn.Parameter(torch.ones(2, 3)),
    )
    x = torch.ones(4, 3)
    config = {"compression": {"algorithm": "quantization"}}
    _, model = nncfx.create_compressed_model(summed, config, x, calibration_batches=[x])
    torch.testing.assert_close(model.eval()(x), torch.full((4, 2), 6.0), rtol=0.02, atol=0)
