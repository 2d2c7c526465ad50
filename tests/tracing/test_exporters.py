"""What torch's own compilers make of a model with weight hooks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

from nncfx.tracing import Insertion, NNCFNetwork, PostSite, WeightSite, wrap

Make: TypeAlias = Callable[[str], nn.Module]
Inputs: TypeAlias = Callable[[str], Any]


@pytest.fixture
def halved(make: Make, inputs: Inputs, halve: nn.Module) -> NNCFNetwork:
    model = wrap(make("LeNet"), inputs("LeNet"))
    model.nncf.register(
        Insertion(WeightSite(name, "weight"), halve, 0, "test") for name in ("conv1", "fc1")
    )
    model.nncf.commit()
    return model


def test_it_compiles_without_graph_breaks(halved: NNCFNetwork, inputs: Inputs) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(halved, fullgraph=True, backend="eager")
    assert torch.equal(compiled(inputs("LeNet")), halved(inputs("LeNet")))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
        return result


def test_attention_with_hooks_inside_compiles_without_graph_breaks() -> None:
    x = torch.linspace(-1, 1, 48).view(2, 3, 8)
    model = wrap(Attention().eval(), x)
    (first, *_) = model.nncf.graph.select(["{function}linear"])
    model.nncf.register([Insertion(PostSite(first.address), nn.Tanh(), 0, "test")])
    model.nncf.commit()
    torch._dynamo.reset()
    with torch.no_grad():  # with gradients torch's own fused path is another
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), model(x))


def test_a_compiled_model_sees_a_hooks_new_parameter(
    halved: NNCFNetwork, inputs: Inputs, halve: nn.Module
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(halved, fullgraph=True, backend="eager")
    before = compiled(inputs("LeNet"))
    with torch.no_grad():
        halve.factor.fill_(2.0)
    assert not torch.equal(compiled(inputs("LeNet")), before)
    assert torch.equal(compiled(inputs("LeNet")), halved(inputs("LeNet")))


def test_it_exports_with_the_hooks_parameters_in_its_state(
    halved: NNCFNetwork, inputs: Inputs
) -> None:
    program = torch.export.export(halved, (inputs("LeNet"),))
    assert torch.equal(program.module()(inputs("LeNet")), halved(inputs("LeNet")))
    assert "_nncf.test.conv1|weight.factor" in program.state_dict


@pytest.mark.slow  # the ONNX exporter takes its time
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_it_exports_to_onnx(halved: NNCFNetwork, inputs: Inputs, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    torch.onnx.export(halved, (inputs("LeNet"),), path, dynamo=True, verbose=False)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {session.get_inputs()[0].name: inputs("LeNet").numpy()})
    # sums of up to 400 float32 products: a few units in the seventh digit
    torch.testing.assert_close(
        torch.from_numpy(got), halved(inputs("LeNet")), rtol=1e-4, atol=1e-5
    )
