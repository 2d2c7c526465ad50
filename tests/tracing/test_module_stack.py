"""Promises of nncfx.tracing.module_stack: what tells where a hook can stand at run time."""

import torch
from torch import nn

from nncfx.tracing.module_stack import Boundary
from nncfx.tracing.tracer import trace_with_wiring


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.padded = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.padded(self.act(x)))


def test_the_only_call_of_a_module_is_at_its_boundary() -> None:
    place = trace_with_wiring(Model(), torch.zeros(1, 1, 8)).wiring.places
    assert place["Model/ReLU[act]/relu_1"].boundary == Boundary({0: 0}, is_result=True)
    assert place["Model/ReLU[act]/relu_1"].ordinal == 1


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
