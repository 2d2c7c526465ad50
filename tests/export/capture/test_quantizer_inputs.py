"""Exports of models that compute something else while they are exported."""

from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import ExportError
from small_models import Function

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class Branching(nn.Module):
    """A sum between two layers; one more sum before it while exported."""

    def __init__(self, *, more: bool) -> None:
        super().__init__()
        torch.manual_seed(0)  # of other weights a runtime may round a tie to the next integer
        self.first, self.last, self.more = nn.Linear(6, 6), nn.Linear(6, 2), more

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.more and torch.compiler.is_exporting():
            y = y * (torch.ones(6) + 1.0) / 2
        result: Tensor = self.last(y + x)
        return result


def exported(model: nn.Module, path: Path, x: Tensor, *, dynamic_batch: bool = True) -> Tensor:
    """Return what the file of `model` computes of `x`."""
    file = nncfx.export_onnx(model, path / "x.onnx", x, dynamic_batch=dynamic_batch)
    session = onnxruntime.InferenceSession(file.path)
    (name,) = (one.name for one in session.get_inputs())
    return torch.as_tensor(session.run(None, {name: x.numpy()})[0])


class Twice(nn.Module):
    """Calls are counted across both of its layer's."""

    def __init__(self, *, more: bool) -> None:
        super().__init__()
        self.inner = Branching(more=more)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.inner(x), self.inner(x.neg())])


@pytest.mark.parametrize("dynamic_batch", [True, False])
@pytest.mark.parametrize("kind", [Branching, Twice])
def test_calls_that_only_an_export_makes_move_no_quantizer(
    kind: type[Branching | Twice], dynamic_batch: bool, tmp_path: Path
) -> None:
    quantized = nncfx.quantize(kind(more=True).eval(), [X])
    found = exported(quantized, tmp_path, X, dynamic_batch=dynamic_batch)
    torch.testing.assert_close(found, quantized(X), rtol=1e-4, atol=1e-4)


class Elsewhere(Branching):
    """Calls the hooked sum at another place while exported."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if torch.compiler.is_exporting():
            return self.last(y * 1.0 + x)  # type: ignore[no-any-return]  # of a module
        return self.last(y + x)  # type: ignore[no-any-return]  # as above


class OfOne(Branching):
    """Calls the hooked sum at another place of several examples."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if len(x) == 1:
            return self.last(y + x)  # type: ignore[no-any-return]  # of a module
        return self.last(y * 1.0 + x)  # type: ignore[no-any-return]  # as above


def test_open_axes_that_take_another_branch_are_told(tmp_path: Path) -> None:
    quantized = nncfx.quantize(OfOne(more=False).eval(), [X[:1]])
    with pytest.raises(ExportError, match=r"^OfOne cannot be exported with open axes: there its"):
        nncfx.export_onnx(quantized, tmp_path / "x.onnx", X[:1])
    found = exported(quantized, tmp_path, X[:1], dynamic_batch=False)
    torch.testing.assert_close(found, quantized(X[:1]), rtol=1e-4, atol=1e-4)


class Narrower(Branching):
    """Sums fewer rows while exported."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if torch.compiler.is_exporting():
            x, y = x.mean(0), y.mean(0)
        result: Tensor = self.last(y + x)
        return result


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Elsewhere, "calls __add__ at other places than when it was traced"),
        (Narrower, r"another path.*linear_0.*shape \(6,\) instead of \(4"),
    ],
)
def test_a_quantizer_that_an_export_goes_past_or_gives_another_shape_is_refused(
    kind: type[Branching], said: str, tmp_path: Path
) -> None:
    quantized = nncfx.quantize(kind(more=False).eval(), [X])
    with pytest.raises(ExportError, match=said):
        nncfx.export_onnx(quantized, tmp_path / "x.onnx", X)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_operations_that_only_a_script_has_move_no_quantizer(tmp_path: Path) -> None:
    """As in fused functions of Megatron and WaveGlow: of equal shapes."""

    def gated(x: Tensor, y: Tensor) -> Tensor:
        return (x + y) * 8.0 + y

    fused = torch.jit.script(gated)

    layers = Function(
        lambda m, x: m.last(torch.tanh(fused(m.first(x), x)) * 0.5 + x),
        first=nn.Linear(6, 6),
        last=nn.Linear(6, 2),
    )
    quantized = nncfx.quantize(layers.eval(), [X])
    found = exported(quantized, tmp_path, X)
    torch.testing.assert_close(found, quantized(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic_batch", [True, False])
def test_one_that_stands_where_it_did_is_not(dynamic_batch: bool, tmp_path: Path) -> None:
    quantized = nncfx.quantize(Branching(more=False).eval(), [X])
    file = nncfx.export_onnx(quantized, tmp_path / "x.onnx", X, dynamic_batch=dynamic_batch)
    assert file.path.exists()


class Pools(nn.Module):
    """Averages by interpolation while ONNX is written, as PSPNet's authors do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        if torch.onnx.is_in_onnx_export():
            pooled = nn.functional.interpolate(y * 0.5 + y * 0.5, size=(1, 1), mode="area")
        else:
            pooled = nn.functional.adaptive_avg_pool2d(y, 1)
        result: Tensor = self.last(torch.cat([y, pooled.expand_as(y)], 1))
        return result


def test_a_quantized_model_takes_the_path_that_it_was_traced_on(tmp_path: Path) -> None:
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    quantized = nncfx.quantize(Pools().eval(), [images])
    file = nncfx.export_onnx(quantized, tmp_path / "x.onnx", images)
    types = [node.op_type for node in onnx.load(file.path).graph.node]
    assert "Resize" not in types
    assert "GlobalAveragePool" in types or "ReduceMean" in types


def test_a_float_model_takes_the_path_that_its_author_wrote_for_onnx(tmp_path: Path) -> None:
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    file = nncfx.export_onnx(Pools().eval(), tmp_path / "x.onnx", images)
    types = [node.op_type for node in onnx.load(file.path).graph.node]
    assert "Mul" in types


def test_a_path_that_calls_a_hooked_function_not_at_all_is_exported(tmp_path: Path) -> None:
    # adds where there are more rows than two
    either = Function(
        lambda m, x: m.last(m.first(x) + x if len(x) > 2 else m.first(x)),
        first=nn.Linear(6, 6),
        last=nn.Linear(6, 2),
    )
    model = nncfx.wrap(either.eval(), X, further_inputs=[X[:2]])
    quantized = nncfx.quantize(model, [X])
    file = nncfx.export_onnx(quantized, tmp_path / "x.onnx", X[:2], dynamic_batch=False)
    types = [node.op_type for node in onnx.load(file.path).graph.node]
    assert "Add" not in types


def test_modules_that_a_forward_makes_are_exported(tmp_path: Path) -> None:
    """As attention of many papers does."""
    torch.manual_seed(0)
    model = Function(
        lambda m, x: nn.Softmax(dim=-1)(m.query(x) @ x.transpose(1, 2)) @ m.value(x),
        query=nn.Linear(6, 6),
        value=nn.Linear(6, 6),
    )
    x = X.view(2, 2, 6)
    quantized = nncfx.quantize(model.eval(), [x])
    found = exported(quantized, tmp_path, x)
    torch.testing.assert_close(found, quantized(x), rtol=1e-3, atol=1e-3)
