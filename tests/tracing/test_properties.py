"""Laws of wrapping, held by modules drawn at random."""

import copy
from typing import Any

import networkx as nx
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from nncfx.graph import NNCFGraph
from nncfx.network import unwrap, wrap
from nncfx.tracing import Insertion, PostSite, PreSite, WeightSite, trace

WIDTH = 3


class Block(nn.Module):
    """Nested modules, some of them shared, joined by functional calls."""

    def __init__(self, parts: list[nn.Module], steps: list[str]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.steps = steps
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, step in enumerate(self.steps):
            part = self.parts[number % len(self.parts)]
            if step == "child":
                x = part(x)
            elif step == "residual":
                x = x + part(x)
            elif step == "in place":
                x = part(x)
                x += 1
            elif step == "scale":
                x = x * self.scale
            elif step == "functional":
                x = F.relu(x)
            else:
                left, right = x.split([1, WIDTH - 1], 1)
                x = torch.cat([right, left], 1)
        return x


steps = st.lists(
    st.sampled_from(["child", "residual", "in place", "scale", "functional", "split"]),
    min_size=1,
    max_size=4,
)
layers: Any = st.sampled_from(
    [lambda: nn.Linear(WIDTH, WIDTH), nn.ReLU, nn.Tanh, lambda: nn.BatchNorm1d(WIDTH)]
).map(lambda make: make())
modules: Any = st.recursive(
    layers,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: nn.Sequential(*parts)),
        st.builds(Block, st.lists(inner, min_size=1, max_size=2), steps),
        st.builds(lambda one: nn.Sequential(one, one), inner),
    ),
    max_leaves=6,
)
X = torch.linspace(-2, 2, 4 * WIDTH).view(4, WIDTH)


@settings(max_examples=60)
@given(modules)
def test_wrapping_holds_its_laws(model: nn.Module) -> None:
    model.eval()
    raw = model(X)
    classes = [type(module) for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}

    graph = trace(model, X)
    assert trace(model, X) == graph
    assert NNCFGraph.from_json(graph.to_json()) == graph
    assert len(set(graph.addresses)) == len(graph.addresses)
    drawn = graph.to_networkx()
    assert nx.is_directed_acyclic_graph(drawn)
    assert nx.has_path(drawn, "/nncf_model_input_0", "/nncf_model_output_0")

    wrapped: Any = wrap(model, X)
    assert wrapped.nncf.graph == graph
    assert torch.equal(wrapped(X), raw)
    wrapped.nncf.register(
        Insertion(site, nn.Identity(), 0, "test")
        for one in graph.operations
        for site in (
            *(WeightSite.of(name) for name in one.parameters.values()),
            *(PreSite(one.address, port) for port in range(len(one.inputs))),
            *(PostSite(one.address, port) for port in range(len(one.outputs))),
        )
    )
    wrapped.nncf.commit()
    assert torch.equal(wrapped(X), raw)
    other = copy.deepcopy(wrapped)
    assert not other.load_state_dict(wrapped.state_dict()).missing_keys
    assert torch.equal(other(X), raw)

    assert torch.equal(unwrap(wrapped)(X), raw)
    assert [type(module) for module in model.modules()] == classes
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
