"""Promises of nncfx.tracing.calls.no_trace."""

import types

import networkx as nx
import pytest
import torch
from torch import nn

from nncfx.network import wrap
from nncfx.tracing import Insertion, PostSite, no_nncf_trace, trace

X = torch.linspace(-1, 1, 8).view(2, 4)


class Net(nn.Module):
    """Calls relu inside and outside of what is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with no_nncf_trace():
            x = torch.relu(self.layer(x) * 2)
        return torch.relu(x) + 1


def test_what_is_left_out_is_no_operation() -> None:
    assert trace(Net(), X).addresses == ["Net/relu_0", "Net/__add___0"]


def test_the_graph_stays_connected() -> None:
    drawn = trace(Net(), X).to_networkx()
    assert nx.has_path(drawn, "/nncf_model_input_0", "/nncf_model_output_0")


class Times3(nn.Module):
    """Unlike doubling, not the same inside and outside of relu twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_hook_stands_at_the_call_outside_and_not_at_the_one_inside(is_compiled: bool) -> None:
    torch.manual_seed(0)
    model = wrap(Net(), X)
    raw = model(X)
    model.nncf.register([Insertion(PostSite("Net/relu_0"), Times3(), 0, "test")])
    model.nncf.commit()
    run = torch.compile(model, fullgraph=True, backend="eager") if is_compiled else model
    assert torch.allclose(run(X), (raw - 1) * 3 + 1)


def test_a_function_of_somebody_else_is_left_out_without_changing_it() -> None:
    library = types.SimpleNamespace(smooth=lambda x: x.exp().log1p())
    smooth = library.smooth

    class User(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return library.smooth(x).relu()

    library.smooth = no_nncf_trace()(library.smooth)
    assert trace(User(), X).addresses == ["User/relu_0"]
    assert torch.equal(User()(X), smooth(X).relu())


def test_what_comes_after_an_error_inside_is_traced_again() -> None:
    with pytest.raises(ZeroDivisionError), no_nncf_trace():
        raise ZeroDivisionError
    assert len(trace(nn.ReLU(), X).addresses) == 1
