"""What torch's own compilers make of a model with weight hooks."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.network import NNCFNetwork, wrap
from nncfx.tracing import Insertion, PostSite, WeightSite
from onnx_files import run_file
from small_models import Applied, Function, inputs, make


@pytest.fixture
def halved(halve: nn.Module) -> NNCFNetwork:
    model = wrap(make("LeNet"), inputs("LeNet"))
    model.nncf.register(
        Insertion(WeightSite(name, "weight"), halve, 0, "test") for name in ("conv1", "fc1")
    )
    model.nncf.commit()
    return model


def test_it_compiles_without_graph_breaks(halved: NNCFNetwork) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(halved, fullgraph=True, backend="eager")
    assert torch.equal(compiled(inputs("LeNet")), halved(inputs("LeNet")))


def attention() -> Function:
    return Function(
        lambda m, x: m.attention(x, x, x, need_weights=False)[0],
        attention=nn.MultiheadAttention(8, 2, batch_first=True),
    )


def test_attention_with_hooks_inside_compiles_without_graph_breaks() -> None:
    x = torch.linspace(-1, 1, 48).view(2, 3, 8)
    model = wrap(attention().eval(), x)
    (first, *_) = model.nncf.graph.select(["{function}linear"])
    model.nncf.register([Insertion(PostSite(first.address), nn.Tanh(), 0, "test")])
    model.nncf.commit()
    torch._dynamo.reset()
    with torch.no_grad():  # with gradients torch's own fused path is another
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), model(x))


def test_a_compiled_model_sees_a_hooks_new_parameter(
    halved: NNCFNetwork, halve: nn.Module
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(halved, fullgraph=True, backend="eager")
    before = compiled(inputs("LeNet"))
    with torch.no_grad():
        halve.factor.fill_(2.0)
    assert not torch.equal(compiled(inputs("LeNet")), before)
    assert torch.equal(compiled(inputs("LeNet")), halved(inputs("LeNet")))


def test_it_exports_with_the_hooks_parameters_in_its_state(halved: NNCFNetwork) -> None:
    program = torch.export.export(halved, (inputs("LeNet"),))
    assert torch.equal(program.module()(inputs("LeNet")), halved(inputs("LeNet")))
    assert "_nncf.test.conv1|weight.factor" in program.state_dict


@pytest.mark.slow  # the ONNX exporter takes its time
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_it_exports_to_onnx(halved: NNCFNetwork, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    torch.onnx.export(halved, (inputs("LeNet"),), path, dynamo=True, verbose=False)
    (got,) = run_file(path, inputs("LeNet"))
    # sums of up to 400 float32 products: a few units in the seventh digit
    torch.testing.assert_close(
        torch.from_numpy(got), halved(inputs("LeNet")), rtol=1e-4, atol=1e-5
    )


def products_net() -> Function:
    """Products that the root makes of its own parameter and of a child's."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        y = x * m.scale
        return (y * m.child.weight[0]).exp() * 1.5

    return Function(forward, scale=nn.Parameter(torch.tensor([2.0, 3.0])), child=nn.Linear(2, 2))


def tripled() -> Applied:
    """A hook that multiplies, as masks do."""
    return Applied(lambda x: x * 3 * 1.0)


class Counted(nn.Module):
    """A hook that keeps the shapes that it has met."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            self.met.append(x.detach().clone())
        return x + 10


X = torch.tensor([[0.5, -0.25]])


def products() -> tuple[NNCFNetwork, Counted]:
    model, counted = wrap(products_net(), X), Counted()
    (second,) = [one.address for one in model.nncf.graph.operations if one.address[-5:] == "l___1"]
    model.nncf.register(
        [
            Insertion(WeightSite("", "scale"), tripled(), 0, "test"),
            Insertion(WeightSite("child", "weight"), tripled(), 0, "test"),
            Insertion(PostSite(second), counted, 0, "test"),
        ]
    )
    model.nncf.commit()
    return model, counted


def test_what_the_hooks_of_a_weight_compute_is_not_counted_among_the_calls() -> None:
    model, counted = products()
    plain = products_net()
    plain.load_state_dict(model.state_dict(), strict=False)
    second = X * plain.scale * 3 * plain.child.weight[0] * 3
    result = model(X)
    (met,) = counted.met
    torch.testing.assert_close(met, second)
    torch.testing.assert_close(result, (second + 10).exp() * 1.5)


def test_nor_is_it_where_the_model_is_compiled_or_exported() -> None:
    model, _ = products()
    expected = model(X)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(X), expected)
    exported = torch.export.export(model, (X,), strict=False).module()
    torch.testing.assert_close(exported(X), expected)


class Positions(nn.Module):
    """Computes its positions in another way while it is exported, as transformers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[-1])
        if torch.compiler.is_exporting():
            positions = (positions + 1) + (-1)
        return (x + 1.0) * positions + 0.5


def test_a_hook_finds_its_call_on_floats_though_others_are_made_while_exporting() -> None:
    model = wrap(Positions(), X)
    first, _ = [one.address for one in model.nncf.graph.operations if "__add__" in one.address]
    model.nncf.register([Insertion(PostSite(first), tripled(), 0, "test")])
    model.nncf.commit()
    expected = (X + 1) * 3 * torch.arange(2) + 0.5
    torch.testing.assert_close(model(X), expected)
    exported = torch.export.export(model, (X,), strict=False).module()
    torch.testing.assert_close(exported(X), expected)
