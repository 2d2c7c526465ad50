"""Promises of nncfx.tracing.record.function_mode."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import TracingError
from nncfx.export import export_onnx
from nncfx.tracing import ExampleInputs, TracedCall, trace
from nncfx.tracing.record.function_mode import watch_shapes
from onnx_files import run_file
from small_models import Function, inputs, make


class _Watcher:
    """Writes down what it is shown."""

    def __init__(self) -> None:
        self.calls: list[TracedCall] = []
        self.ends: list[torch.Size] = []

    def on_input(self, tensor: torch.Tensor) -> None:
        self.ends.append(tensor.shape)

    def on_call(self, call: TracedCall) -> None:
        self.calls.append(call)

    def on_output(self, tensor: torch.Tensor) -> None:
        self.ends.append(tensor.shape)


def _watched(model: nn.Module, inputs: ExampleInputs) -> _Watcher:
    watchers: list[_Watcher] = []

    def watch() -> list[_Watcher]:
        watchers[:] = [_Watcher()]
        return watchers

    watch_shapes(model, inputs, watch)
    return watchers[0]


def test_a_watcher_sees_the_operations_that_a_trace_writes_down() -> None:
    model = make("Mixed")
    graph = trace(model, inputs("Mixed"))
    seen = [call for call in _watched(model, inputs("Mixed")).calls if call.address]
    expected = [(one.address, one.module, one.module_type) for one in graph.operations]
    assert [(call.address, call.module, call.module_class.__name__) for call in seen] == expected
    assert all(call.operation is None for call in seen)  # no graph is made


def test_a_watcher_sees_shapes_and_first_names_of_parameters() -> None:
    layer = nn.Linear(300, 300)
    watcher = _watched(nn.Sequential(layer, layer), torch.ones(1, 300))
    assert watcher.ends == [(1, 300), (1, 300)]
    first, second = watcher.calls
    assert [second.parameter_names[id(one)] for one in first.operands[1:]] == [
        "0.weight",
        "0.bias",
    ]


def test_a_model_that_looks_at_values_is_watched_with_values() -> None:
    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(300, 300)
            nn.init.ones_(self.layer.weight)

        def forward(self, data: torch.Tensor) -> torch.Tensor:
            found = self.layer(data)
            return found.relu() if found.sum() > 0 else found.tanh()

    calls = _watched(Looking().eval(), torch.ones(1, 300)).calls
    assert [call.address for call in calls][-1] == "Looking/relu_0"


def test_inputs_that_the_model_refuses_are_explained() -> None:
    with pytest.raises(TracingError, match=r"Linear refuses .* are \[1, 4\] float32"):
        _watched(nn.Linear(3, 2), torch.ones(1, 4))


def chosen() -> Function:
    """One of two linear layers, by a value."""
    return Function(
        lambda m, x: torch.cond(x.sum() > 0, m.one, m.other, (x,)),
        one=nn.Linear(3, 2),
        other=nn.Linear(3, 2),
    )


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's compiler reads the watching code
def test_a_branch_that_torch_compiles_is_refused_where_it_stands() -> None:
    place = rf"torch.cond or torch.while_loop at {re.escape(__file__)}, line \d+: nncfx cannot"
    with pytest.raises(TracingError, match=place):
        trace(chosen(), torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_branch_that_torch_compiles_is_exported_with_both_ways(tmp_path: Path) -> None:
    model = chosen().eval()
    file = export_onnx(model, tmp_path / "chosen.onnx", torch.randn(2, 3))
    for x in (torch.ones(4, 3), -torch.ones(4, 3)):
        [found] = run_file(file, x)
        torch.testing.assert_close(torch.as_tensor(found), model(x).detach())
