"""The simulation in float32: what it leaves out, and that nothing is lost by it."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nncfx import hago
from nncfx.hago.execution.simulation import SimulatedGraph
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.hago.strategy.edge_plan import make_plan
from nncfx.targets import Descriptor, Hardware


def on_grid(values: Tensor, threshold: Tensor, bits: int) -> Tensor:
    step, most = threshold / 2 ** (bits - 1), 2 ** (bits - 1) - 1
    return (values / step).round().clamp(-most, most) * step


def test_a_product_of_rounded_factors_by_hand_whatever_changes(vnni: Hardware) -> None:
    """The weight takes on the step of its input: it has to follow when only that one changes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 4, bias=False)).eval()
    weight, x = model[0].weight.detach(), torch.randn(32, 16)
    graph = hago.prepare_graph(model, x[:1])
    space = hago.search_space(graph, vnni, [(x, torch.zeros(32))], hago.QuantizeSettings())
    evaluator = hago.Evaluator(
        graph, vnni, space.strategy, [(x, torch.zeros(32))], hago.top1_accuracy
    )
    largest = torch.tensor(space.strategy.thresholds[0])
    by_channel = weight.abs().amax(1, keepdim=True)
    for bits, which in itertools.product([(8, 8), (4, 8), (4, 5)], [None, (1,), (0,), ()]):
        edges = (0, 1) if which is None else which
        simulated = evaluator.simulated(bits)
        simulated.restrict_to(which)
        given = on_grid(x, largest, bits[0]) if 0 in edges else x
        factor = on_grid(weight, by_channel, bits[1]) if 1 in edges else weight
        with torch.no_grad():
            # 16 products of at most 4, each off by 2**-23 of itself, and their sums
            assert torch.allclose(simulated(x), given @ factor.T, rtol=0, atol=1e-4)


def test_the_fast_simulation_is_near_the_exact_one(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, space: hago.SearchSpace
) -> None:
    """No value of this model lies within 2**-22 of a tie, so that only sums differ."""
    for few in (8, 5):
        bits = tuple(few if few in each else each[0] for each in space.choices)
        plan = make_plan(graph, vnni, replace(space.strategy, bits=bits))
        fast, exact = (SimulatedGraph(graph, plan, one) for one in (torch.float32, torch.float64))
        images = dataset[0][0]
        with torch.no_grad():
            assert torch.allclose(fast(images).double(), exact(images), atol=1e-4)


class Pooled(nn.Module):
    """A shortcut of few integers, added to sums that could overflow 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        for one in (self.conv1, self.conv2):
            one.weight.data.mul_(0.05)[:, 0, 1, 1] = 1.0

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.conv1(x), 2)
        return (x + self.conv2(x)).flatten(1)


def test_the_fast_simulation_keeps_what_fits_into_32_bits() -> None:
    """Sums of products of 16 bits may wrap around; where one weight is the most, none does."""
    hardware = Hardware(
        name="wide sums",
        operations={
            "conv": (Descriptor(inputs=("int16", "int16"), output="int32"),),
            "max_pool": (Descriptor(inputs=("int8",), output="int8"),),
            "add": (Descriptor(inputs=("int32", "int32"), output="int32"),),
        },
    )
    torch.manual_seed(0)
    images = torch.randn(8, 3, 8, 8)
    graph = hago.prepare_graph(Pooled().eval(), images[:1])
    space = hago.search_space(graph, hardware, [(images, images)], hago.QuantizeSettings())
    plan = make_plan(graph, hardware, space.strategy)
    assert any(one.overflows for one in plan.outputs.values())
    fast, exact = (SimulatedGraph(graph, plan, one) for one in (torch.float32, torch.float64))
    with torch.no_grad():
        expected = exact(images)
        assert torch.allclose(fast(images).double(), expected, atol=1e-4)
        # no sum did wrap around
        assert (expected - graph.model(images)).abs().max() < 0.05 * expected.abs().max()


def test_what_has_nothing_to_do_is_no_hook(graph: hago.QuantGraph, vnni: Hardware) -> None:
    """A ReLU takes sums as they come."""
    images = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    space = hago.search_space(graph, vnni, [(images, images)], hago.QuantizeSettings())
    simulated = SimulatedGraph(graph, make_plan(graph, vnni, space.strategy), torch.float32)
    hooked = [str(one.site) for one in simulated.model.nncf.hooks]
    assert any("__add__" in one for one in hooked)
    assert not any("relu" in one for one in hooked)


def test_a_hook_comes_when_a_later_plan_needs_it(
    graph: hago.QuantGraph, narrow_sums: Hardware, dataset: LabelledBatches
) -> None:
    """Sums of few bits fit into 16 bits, and nothing is done to them; those of 8 wrap around."""
    space = hago.search_space(graph, narrow_sums, dataset, hago.QuantizeSettings())
    few = tuple(4 if 4 in each else each[0] for each in space.choices)
    plans = [
        make_plan(graph, narrow_sums, replace(space.strategy, bits=bits))
        for bits in (few, space.strategy.bits)
    ]
    simulated = SimulatedGraph(graph, plans[0], torch.float32)
    before = len(simulated.model.nncf.hooks)
    simulated.set_plan(plans[1])
    assert len(simulated.model.nncf.hooks) > before
    fresh = SimulatedGraph(graph, plans[1], torch.float32)
    images = dataset[0][0]
    with torch.no_grad():
        assert torch.equal(simulated(images), fresh(images))
        wide = plans[1].edges
    assert any(one.overflows for one in wide.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_going_back_to_a_plan_gives_what_it_gave(
    graph: hago.QuantGraph, narrow_sums: Hardware, dataset: LabelledBatches, dtype: torch.dtype
) -> None:
    space = hago.search_space(graph, narrow_sums, dataset, hago.QuantizeSettings())
    few = tuple(each[-1] for each in space.choices)
    images = dataset[0][0]
    plans = [
        make_plan(graph, narrow_sums, replace(space.strategy, bits=bits))
        for bits in (few, space.strategy.bits)
    ]
    simulated = SimulatedGraph(graph, plans[0], dtype)
    with torch.no_grad():
        first = simulated(images)
        simulated.set_plan(plans[1])
        other = simulated(images)
        simulated.set_plan(plans[0])
        assert torch.equal(simulated(images), first)
    assert not torch.equal(other, first)
