"""A program is decomposed to what torch makes of it, node for node."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

from nncfx.export.capture.decomposition import QuicklyDecomposed


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        x = F.hardswish(x) + x.mean((2, 3), keepdim=True)
        return F.softmax(self.linear(x.flatten(2).transpose(1, 2)), dim=-1)


class _Sized(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = torch.arange(x.shape[0]).reshape(-1, 1, 1, 1) + 1
        return x.reshape(x.shape[0] * 3, -1).repeat(2, 1) * 2 + ones.sum()


class _Views(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 0].add_(1)
        return y


class _Input(nn.Module):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (as torch's layers)
        return input.relu().flatten(1)


class _Pooled(nn.Module):
    """Averages channels-last images, whose mean torch gives its layout in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        return F.adaptive_avg_pool2d(x.relu(), 1)


def _called(program: ExportedProgram) -> list[str]:
    nodes = program.graph.nodes
    return [f"{one.op} {one.name} {one.target} {one.args} {one.kwargs}" for one in nodes]


def _modules(program: ExportedProgram) -> list[Any]:
    nodes = [one for one in program.graph.nodes if one.op == "call_function"]
    return [(one.meta.get("nn_module_stack"), one.meta.get("stack_trace")) for one in nodes]


def _both(model: nn.Module, axes: Any) -> tuple[ExportedProgram, ExportedProgram]:  # noqa: ANN401 (as torch)
    x = torch.randn(2, 3, 4, 4)

    def program() -> ExportedProgram:
        return torch.export.export(model.eval(), (x,), dynamic_shapes=axes)

    table = torch.export.default_decompositions()
    del table[torch.ops.aten.linear.default]
    quickly = QuicklyDecomposed.of(program()).run_decompositions(dict(table.items()))
    return quickly, program().run_decompositions(dict(table.items()))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own, as it copies
@pytest.mark.parametrize("model", [_Block(), _Sized(), _Views(), _Input(), _Pooled()])
@pytest.mark.parametrize("is_open", [False, True])
def test_equals_what_torch_makes(model: nn.Module, *, is_open: bool) -> None:
    quickly, slowly = _both(model, ({0: Dim("batch", min=2)},) if is_open else None)
    targets = [str(node.target) for node in quickly.graph.nodes]
    assert targets == [str(node.target) for node in slowly.graph.nodes]
    assert _modules(quickly) == _modules(slowly)
    if not is_open and not isinstance(model, _Pooled):
        # names of what follows an open axis count sizes that torch reads on the way, and what
        # was in place keeps its name
        assert _called(quickly) == _called(slowly)
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(quickly.module()(x), model(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("model", "left"), [(_Block(), "relu"), (_Pooled(), "as_strided")])
@pytest.mark.parametrize("is_open", [False, True])
def test_only_runs_what_is_decomposed(
    model: nn.Module, left: str, monkeypatch: pytest.MonkeyPatch, *, is_open: bool
) -> None:
    monkeypatch.setattr(
        ExportedProgram, "run_decompositions", lambda *_: pytest.fail("torch has run it all")
    )
    axes = ({0: Dim("batch", min=2)},) if is_open else None
    x = torch.randn(2, 3, 4, 4)
    program = torch.export.export(model.eval(), (x,), dynamic_shapes=axes)
    table = dict(torch.export.default_decompositions().items())
    decomposed = QuicklyDecomposed.of(program).run_decompositions(table)
    names = [str(node.target) for node in decomposed.graph.nodes]
    assert f"aten.{left}.default" in names
    assert "aten.linear.default" not in names
