"""Rounding where the data lies changes nothing but the time it takes."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx import hago
from nncfx.hago.execution.simulation import Remembered, SimQ, SimulatedGraph
from nncfx.hago.graph.overwriting import overwritable_edges
from nncfx.hago.strategy.edge_plan import EdgePlan, make_plan
from nncfx.targets import Hardware, hardware_named


class _Branches(nn.Module):
    """A convolution whose result goes several ways, which a test chooses."""

    def __init__(self, ways: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.table = torch.rand(8, 8) + 1 / 3  # neither a parameter nor a buffer
        self.ways = ways

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ways(self, self.first(x))


def _twice(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    return own.second(y) + y


def _view_first(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    half = y[:, :, ::2]
    return own.second(y)[:, :, ::2] + half


def _relu_in_place(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    y = F.relu(y, inplace=True)
    return own.second(y) + y


def _relu_said_by_place(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    z = F.relu6(y, True)
    return own.second(z) + y


def _added_in_place(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    z = own.second(y)
    z += y
    return own.second(z)


def _with_itself(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    return own.second(y + y) * y


def _returned_too(own: _Branches, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return own.second(y), y


def _attribute_in_place(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    return own.second(y) + F.relu(own.table, inplace=True)


def _matmul_of_a_view(own: _Branches, y: torch.Tensor) -> torch.Tensor:
    turned = y.transpose(2, 3)
    return torch.matmul(y, turned) + torch.matmul(turned, own.second(y))


_WAYS = [
    *(_twice, _view_first, _relu_in_place, _relu_said_by_place, _added_in_place),
    *(_with_itself, _returned_too, _matmul_of_a_view, _attribute_in_place),
]


def _simulated(graph: hago.QuantGraph, hardware: Hardware, *, overwrites: bool) -> SimulatedGraph:
    settings = hago.QuantizeSettings()
    data = [(torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.zeros(8))]
    strategy = hago.search_space(graph, hardware, data, settings).strategy
    few = tuple(min(one, 5) for one in strategy.bits)
    plan = make_plan(graph, hardware, hago.Strategy(*_parts(strategy, few)))
    simulated = SimulatedGraph(graph, plan, torch.float32)
    for one in simulated.modules():
        if isinstance(one, SimQ) and not overwrites:
            one._overwrites = False
    return simulated


def _parts(strategy: hago.Strategy, bits: tuple[int, ...]) -> tuple[object, ...]:
    return strategy.model_hash, strategy.topology, bits, strategy.thresholds


@pytest.mark.parametrize("ways", _WAYS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", ["hago", "onnxruntime", "tensorrt"])
def test_the_simulation_is_the_same_bit_for_bit(
    ways: Callable[[nn.Module, torch.Tensor], torch.Tensor], name: str
) -> None:
    graph = hago.prepare_graph(_Branches(ways).eval(), torch.zeros(1, 3, 8, 8))
    hardware = hardware_named(name)
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    before = images.clone()
    with torch.no_grad():
        found = _simulated(graph, hardware, overwrites=True)(images)
        expected = _simulated(graph, hardware, overwrites=False)(images)
    one, other = (each[0] if isinstance(each, tuple) else each for each in (found, expected))
    assert torch.equal(one, other)
    if isinstance(found, tuple):
        assert torch.equal(found[1], expected[1])
    assert torch.equal(images, before)


def _overwritten(ways: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> set[str]:
    graph = hago.prepare_graph(_Branches(ways).eval(), torch.zeros(1, 3, 8, 8))
    return {graph.describe(graph.edges[one]) for one in overwritable_edges(graph)}


def test_the_last_reader_may_overwrite() -> None:
    first, second = "_Branches/Conv2d[first]/conv2d_0", "_Branches/Conv2d[second]/conv2d_0"
    add = "_Branches/__add___0"
    assert _overwritten(_twice) == {f"{first} -> {add}|INPUT1", f"{second} -> {add}|INPUT0"}


@pytest.mark.parametrize("ways", [_view_first, _returned_too])
def test_what_others_may_still_see_is_left_alone(
    ways: Callable[[nn.Module, torch.Tensor], torch.Tensor],
) -> None:
    assert not any(one.startswith("_Branches/Conv2d[first]") for one in _overwritten(ways))


def test_a_relu_in_place_shares_the_memory_of_what_nobody_else_reads() -> None:
    found = _overwritten(_relu_in_place)
    assert "_Branches/relu__0 -> _Branches/__add___0|INPUT1" in found


def test_a_tensor_that_is_no_node_is_left_alone() -> None:
    assert not any("relu_" in one for one in _overwritten(_attribute_in_place))


def test_a_gradient_goes_through_what_could_be_overwritten(vnni: Hardware) -> None:
    graph = hago.prepare_graph(_Branches(_relu_in_place).eval(), torch.zeros(1, 3, 8, 8))
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    simulated = _simulated(graph, vnni, overwrites=True)
    with torch.no_grad():
        expected = simulated(images)
    found = simulated(images.requires_grad_())
    assert torch.equal(found.detach(), expected)
    found.sum().backward()


def test_a_changed_weight_is_rounded_again(vnni: Hardware) -> None:
    graph = hago.prepare_graph(_Branches(_twice).eval(), torch.zeros(1, 3, 8, 8))
    simulated = _simulated(graph, vnni, overwrites=True)
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        before = simulated(images)
        for parameter in simulated.model.parameters():
            parameter.mul_(0.5)
        after = simulated(images)
        assert not torch.equal(before, after)
        simulated.restrict_to([])
        assert torch.allclose(simulated(images), simulated.model(images))
        for parameter in simulated.model.parameters():
            parameter.mul_(2)
        simulated.restrict_to(None)
        assert torch.equal(simulated(images), before)


def test_what_is_remembered_is_never_half_of_something_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def plan(step: float) -> EdgePlan:
        return EdgePlan(out_scale=torch.tensor(step), largest=127)

    def set_and_called(own: nn.Module, name: str, value: object) -> None:
        nn.Module.__setattr__(own, name, value)
        found.append(own(weight))  # as another thread may at any time

    hook, weight = SimQ(plan(0.5), is_exact=False), torch.tensor([0.6, 1.3])
    remembered, found = Remembered(hook), []
    remembered(weight)
    hook.plan = plan(0.25)
    monkeypatch.setattr(Remembered, "__setattr__", set_and_called)
    found.append(remembered(weight))
    assert all(torch.equal(one, torch.tensor([0.5, 1.25])) for one in found)
