"""Promises of nncfx.tracing.calls.module_stack: what tells where a hook can stand at run time."""

from contextlib import suppress

import pytest
import torch
from torch import nn

from nncfx.errors import TracingError
from nncfx.tracing.calls.module_stack import Boundary
from nncfx.tracing.record.tracer import trace_with_wiring


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.padded = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.padded(self.act(x)))


def test_the_only_call_of_a_module_is_at_its_boundary() -> None:
    place = trace_with_wiring(Model(), torch.zeros(1, 1, 8)).wiring.places
    assert place["Model/ReLU[act]/relu_1"].boundary == Boundary({0: 0}, is_result=True, visit=1)


def test_one_of_two_calls_is_not_at_the_boundary() -> None:
    # circular padding is a call of its own
    place = trace_with_wiring(Model(), torch.zeros(1, 1, 8)).wiring.places
    assert place["Model/Conv1d[padded]/pad_0"].boundary is None
    assert place["Model/Conv1d[padded]/conv1d_0"].boundary is None


def test_calls_and_callees_are_counted_by_module() -> None:
    learnt = trace_with_wiring(Model(), torch.zeros(1, 1, 8)).wiring
    assert dict(learnt.calls) == {"act": 2}
    assert learnt.called == {"", "act", "padded"}
    assert dict(learnt.callees) == {"": ("act", "padded")}


class Hooked(nn.Module):
    """A layer with a hook before and a hook after it, each of which makes a call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.layer.register_forward_pre_hook(lambda _, args: (args[0].sin(),))
        self.last = nn.Linear(2, 2)
        self.last.register_forward_hook(lambda _, __, result: result.cos())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(x))


def test_calls_of_hooks_around_a_module_are_its_callers() -> None:
    assert trace_with_wiring(Hooked(), torch.zeros(1, 2)).graph.addresses == [
        "Hooked/sin_0",
        "Hooked/Linear[layer]/linear_0",
        "Hooked/Linear[last]/linear_0",
        "Hooked/cos_0",
    ]


def test_modules_are_as_they_were_after_a_trace_that_fails_too() -> None:
    model = Hooked()
    compiled = model.last.__dict__["_compiled_call_impl"] = model.last.forward
    before = [dict(vars(module)) for module in model.modules()]
    hooks = [len(module._forward_pre_hooks) for module in model.modules()]
    for width in (2, 3):
        with suppress(TracingError):
            trace_with_wiring(model, torch.zeros(1, width))
    assert [vars(module) for module in model.modules()] == before
    assert [len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert vars(model.last)["_compiled_call_impl"] is compiled


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_module_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.Linear(2, 2)))
    with pytest.raises(TracingError, match=r"'1' is a RecursiveScriptModule, where no operat"):
        trace_with_wiring(model, torch.zeros(1, 2))


def test_what_a_model_computes_around_its_forward_is_named() -> None:
    class Doubling(nn.Linear):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().__call__(x)

    with pytest.raises(TracingError, match="Doubling computes in its __call__"):
        trace_with_wiring(Doubling(2, 2), torch.zeros(1, 2))
    inside = trace_with_wiring(nn.Sequential(Doubling(2, 2)), torch.zeros(1, 2)).graph
    assert inside.addresses[-1].startswith("Sequential/__")
