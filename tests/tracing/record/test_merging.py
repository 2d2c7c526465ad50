"""Promises of nncfx.tracing.record.merging."""

import networkx as nx
import pytest
import torch
from torch import nn

from nncfx.errors import TracingError
from nncfx.network import wrap
from nncfx.tracing import Insertion, PostSite, WeightSite, trace


class Branch(nn.Module):
    """Takes one way for positive sums, another for the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.wide(x)) if x.sum() > 0 else torch.tanh(self.narrow(x))
        return self.head(x)


UP, DOWN = torch.ones(1, 4), -torch.ones(1, 4)


class Double(nn.Module):
    """Doubles, which floating point does exactly."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_the_graph_of_several_inputs_holds_all_branches() -> None:
    graph = wrap(Branch(), UP, further_inputs=[DOWN]).nncf.graph
    assert set(graph.addresses) == {
        *trace(Branch(), UP).addresses,
        *trace(Branch(), DOWN).addresses,
    }
    drawn = graph.to_networkx()
    assert nx.is_directed_acyclic_graph(drawn)
    for address in graph.addresses[-3:]:
        assert nx.has_path(drawn, address, "/nncf_model_output_0")
    assert [one.index for one in graph.operations] == list(range(len(graph.operations)))


def test_one_more_input_of_the_same_kind_changes_nothing() -> None:
    model = Branch()
    assert wrap(model, UP, further_inputs=[2 * UP]).nncf.graph == trace(Branch(), UP)


@pytest.mark.parametrize("x", [UP, DOWN])
def test_hooks_stand_in_every_branch(x: torch.Tensor) -> None:
    torch.manual_seed(0)
    model = Branch()
    with torch.no_grad():
        way = torch.relu(model.wide(x)) if x is UP else torch.tanh(model.narrow(x))
        expected = model.head(way * 2)
    wrapped = wrap(model, UP, further_inputs=[DOWN])
    wrapped.nncf.register(
        [
            Insertion(PostSite("Branch/relu_0"), Double(), 0, "test"),
            Insertion(PostSite("Branch/tanh_0"), Double(), 0, "test"),
            Insertion(WeightSite("narrow", "weight"), nn.Identity(), 0, "test"),
        ]
    )
    wrapped.nncf.commit()
    assert torch.equal(wrapped(x), expected)


class Either(nn.Module):
    """A module whose only call is now one, now another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) if x.sum() > 0 else torch.tanh(x)


def test_a_hook_at_one_of_two_only_calls_leaves_the_other_alone() -> None:
    model = wrap(Either(), UP, further_inputs=[DOWN])
    model.nncf.register([Insertion(PostSite("Either/relu_0"), Double(), 0, "test")])
    model.nncf.commit()
    assert torch.equal(model(UP), 2 * UP)
    assert torch.equal(model(DOWN), torch.tanh(DOWN))


class Order(nn.Module):
    """Calls two functions, or two modules, in an order that depends on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.tanh = nn.ReLU(), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return torch.relu(torch.tanh(x))
        return torch.tanh(torch.relu(x))


class ModuleOrder(Order):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.tanh(x)) if x.sum() > 0 else self.tanh(self.relu(x))


def test_opposite_orders_are_refused_and_the_model_left_as_it_was() -> None:
    model = ModuleOrder()
    with pytest.raises(TracingError, match="in different orders"):
        wrap(model, UP, further_inputs=[DOWN])
    assert type(model) is ModuleOrder


def test_functions_called_at_two_places_are_two_operations() -> None:
    model = wrap(Order(), UP, further_inputs=[DOWN])
    for function in ("relu", "tanh"):
        found = {one.address for one in model.nncf.graph.select([f"{{function}}{function}"])}
        assert found == {f"Order/{function}_0", f"Order/{function}_1"}
    model.nncf.register([Insertion(PostSite("Order/relu_0"), Double(), 0, "test")])
    model.nncf.commit()
    assert torch.equal(model(UP), 2 * torch.tanh(UP))
    assert torch.equal(model(DOWN), torch.tanh(torch.relu(DOWN)))


def test_operations_not_traced_are_named() -> None:
    model = wrap(Branch(), UP)
    assert model.nncf.untraced(UP) == []
    assert model.nncf.untraced(DOWN) == ["Branch/Linear[narrow]/linear_0", "Branch/tanh_0"]
