"""Scales, clips and widths on every edge, by hand."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from nncfx import hago
from nncfx.errors import ArgumentError, CompressionError
from nncfx.hago.rules.scale_rules import infer_scale, keeps_scale, rectified_scales, rectify
from nncfx.hago.strategy.edge_plan import Plan, Planner, make_plan
from nncfx.targets import Hardware


@pytest.fixture
def strategy(graph: hago.QuantGraph, sample: Hardware) -> hago.Strategy:
    topology = hago.quantize_topology(graph, sample)
    thresholds = [4.0] * len(graph.nodes)
    thresholds[1] = (0.5, 1.0) * 4  # conv1.weight, by channel
    thresholds[4] = (2.0,) * 8
    thresholds[3] = 2.0  # the first ReLU
    return hago.Strategy(
        graph.model_hash, topology, (8, 6, 32, 5, 4, 20, 16, 32), tuple(thresholds)
    )


@pytest.fixture
def plan(graph: hago.QuantGraph, sample: Hardware, strategy: hago.Strategy) -> Plan:
    return make_plan(graph, sample, strategy)


def test_scale_is_threshold_over_the_integer_range(plan: Plan) -> None:
    assert float(plan.edges[0].out_scale) == 4.0 / 2**7
    assert plan.edges[0].largest == 127


def test_weights_have_a_scale_per_output_channel(plan: Plan) -> None:
    scale = plan.edges[1].out_scale
    assert scale.shape == (8, 1, 1, 1)
    assert scale.flatten().tolist() == [0.5 / 2**5, 1.0 / 2**5] * 4
    assert plan.edges[1].largest == 31


def test_sums_have_the_product_of_the_scales(plan: Plan) -> None:
    expected = 4.0 / 2**7 * torch.tensor([0.5, 1.0] * 4, dtype=torch.float64) / 2**5
    assert torch.equal(plan.edges[2].in_scale, expected.view(8, 1, 1))


def test_a_relu_takes_sums_as_they_are(plan: Plan) -> None:
    assert plan.edges[2].is_kept
    assert plan.edges[2].out_scale is plan.edges[2].in_scale


def test_operands_of_an_addition_get_the_coarsest_scale(plan: Plan) -> None:
    # 4 / 2**19 from conv2 against 2 / 2**15 from the ReLU
    assert float(plan.edges[5].out_scale) == float(plan.edges[6].out_scale) == 2.0 / 2**15
    assert (plan.edges[5].largest, plan.edges[6].largest) == (2**19 - 1, 2**15 - 1)


def test_into_float_goes_what_the_integers_mean(plan: Plan) -> None:
    edge = plan.edges[8]
    assert edge.out_scale is None
    assert float(edge.in_scale) == 2.0 / 2**15


def test_edges_between_floats_have_no_plan(plan: Plan) -> None:
    assert 9 not in plan.edges
    assert 11 not in plan.edges


def test_power_of_two_hardware_rounds_scales_up(
    graph: hago.QuantGraph, sample: Hardware, strategy: hago.Strategy
) -> None:
    plan = make_plan(graph, replace(sample, power_of_two_scales=True), strategy)
    scales = [one.out_scale for one in plan.edges.values() if one.out_scale is not None]
    assert all(torch.equal(torch.log2(one), torch.log2(one).round()) for one in scales)
    odd = replace(strategy, thresholds=(3.0, *strategy.thresholds[1:]))
    plan = make_plan(graph, replace(sample, power_of_two_scales=True), odd)
    assert float(plan.edges[0].out_scale) == 4.0 / 2**7


def test_sums_that_fit_their_register_are_not_wrapped(plan: Plan) -> None:
    assert not any(one.overflows for one in plan.edges.values())


def test_sums_that_may_not_fit_are(graph: hago.QuantGraph, narrow_sums: Hardware) -> None:
    topology = hago.quantize_topology(graph, narrow_sums)
    choices = hago.choice_space(graph, topology, narrow_sums)
    most = tuple(one[0] for one in choices)
    strategy = hago.Strategy(graph.model_hash, topology, most, (1.0,) * len(graph.nodes))
    edges = make_plan(graph, narrow_sums, strategy).edges
    assert edges[2].overflows  # 27 products of 127 * 127
    assert edges[2].in_bits == 16
    fewer = replace(strategy, bits=tuple(min(one, 4) for one in most))
    assert not make_plan(graph, narrow_sums, fewer).edges[2].overflows  # 27 * 7 * 7, and a bias


def test_a_strategy_of_another_shape_is_refused(
    graph: hago.QuantGraph, sample: Hardware, strategy: hago.Strategy
) -> None:
    with pytest.raises(CompressionError, match="has 7 bits, and the graph has 8 quantized edges"):
        make_plan(graph, sample, replace(strategy, bits=strategy.bits[1:]))


def test_a_rule_of_the_user_is_taken_for_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rectify, "_rules", dict(rectify._rules))

    @hago.rectify("hardswish")
    def halved(
        in_scales: Sequence[torch.Tensor], out_scales: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        del in_scales
        return [one / 2 for one in out_scales]

    assert not keeps_scale("hardswish")
    assert rectified_scales("hardswish", [torch.tensor(3.0)], [torch.tensor(4.0)]) == [2.0]


def test_a_rule_for_no_function_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"'convv' is neither.*Did you mean 'conv'"):
        infer_scale("convv")


def test_one_planner_gives_the_plans_that_new_ones_give(
    graph: hago.QuantGraph, narrow_sums: Hardware, sample: Hardware, vnni: Hardware
) -> None:
    drawn = random.Random(0)  # noqa: S311 (a test, no secret)
    for hardware in (narrow_sums, sample, vnni):
        topology = hago.quantize_topology(graph, hardware)
        choices = hago.choice_space(graph, topology, hardware)
        bits = [one[0] for one in choices]
        planner = Planner(graph, hardware)
        for _ in range(30):
            changed = drawn.randrange(len(bits))
            bits[changed] = drawn.choice(choices[changed])
            thresholds = [drawn.choice([1.0, 2.5]) for _ in graph.nodes]
            strategy = hago.Strategy(graph.model_hash, topology, tuple(bits), tuple(thresholds))
            for again in (strategy, replace(strategy, bits=tuple(one[0] for one in choices))):
                _assert_same(planner.plan(again), make_plan(graph, hardware, again))


def test_a_planner_keeps_what_does_not_change(graph: hago.QuantGraph, vnni: Hardware) -> None:
    topology = hago.quantize_topology(graph, vnni)
    most = tuple(one[0] for one in hago.choice_space(graph, topology, vnni))
    strategy = hago.Strategy(graph.model_hash, topology, most, (1.0,) * len(graph.nodes))
    planner = Planner(graph, vnni)
    before = planner.plan(strategy)
    after = planner.plan(replace(strategy, bits=(*most[:-1], most[-1] - 1)))
    kept = [number for number, one in before.edges.items() if one is after.edges[number]]
    assert kept == sorted(before.edges)[: len(kept)]  # all but what the last call reads
    assert len(before.edges) - len(kept) == 2


def _assert_same(one: Plan, other: Plan) -> None:
    assert one.descriptors == other.descriptors
    for name in ("edges", "outputs", "biases", "first_scales"):
        found, expected = getattr(one, name), getattr(other, name)
        assert found.keys() == expected.keys()
        for number, each in expected.items():
            torch.testing.assert_close(
                _values(found[number]), _values(each), rtol=0, atol=0, equal_nan=True
            )


def _values(one: object) -> object:
    if isinstance(one, torch.Tensor):
        return one
    return {name: value for name, value in _flat(one) if value is not None}


def _flat(one: object) -> Iterator[tuple[str, object]]:
    for name, value in vars(one).items():
        if hasattr(value, "multiplier"):
            yield from vars(value).items()
        else:
            yield name, value
