"""Promises of nncfx.export.capture.exportable_calls, beside those of the forms themselves."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from typing_extensions import override

import nncfx

X = torch.linspace(-1, 1, 24).view(3, 8)


class Policy(nn.Module):
    """An action and how likely it is, as actor-critics return them."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.deviation = nn.Linear(8, 2), nn.Linear(8, 2)

    @override
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        chosen = Normal(self.mean(x), self.deviation(x).exp())
        return chosen.mean, chosen.log_prob(chosen.mean + 0.1).sum(1)


@pytest.mark.parametrize("is_quantized", [False, True])
def test_a_policy_is_exported_with_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_quantized: bool
) -> None:
    monkeypatch.setattr(Distribution, "_validate_args", True)  # gpytorch sets it to False
    torch.manual_seed(0)
    model = Policy().eval()
    if is_quantized:
        model = nncfx.quantize(model, [X])
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", X)
    session = onnxruntime.InferenceSession(file.path)
    found = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    for one, expected in zip(found, model(X), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), expected, rtol=1e-4, atol=1e-4)
    assert Distribution._validate_args  # it checks again


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dynamic_batch", [True, False])
def test_bags_of_equal_sizes_are_exported(
    tmp_path: Path, mode: str, *, dynamic_batch: bool
) -> None:
    torch.manual_seed(0)
    model = nn.EmbeddingBag(50, 8, mode=mode)
    indices = torch.randint(0, 50, (4, 5))
    path = tmp_path / "m.onnx"
    file = nncfx.export_onnx(model, path, indices, dynamic_batch=dynamic_batch)
    session = onnxruntime.InferenceSession(file.path)
    more = torch.randint(0, 50, (7 if dynamic_batch else 4, 5))
    (found,) = session.run(None, {session.get_inputs()[0].name: more.numpy()})
    torch.testing.assert_close(torch.as_tensor(found), model(more))


def test_weighted_bags_are_exported(tmp_path: Path) -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(50, 8, mode="sum")

        @override
        def forward(self, indices: Tensor, weights: Tensor) -> Tensor:
            result: Tensor = self.bag(indices, per_sample_weights=weights)
            return result

    torch.manual_seed(0)
    model, inputs = Weighted(), (torch.randint(0, 50, (4, 5)), torch.rand(4, 5))
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", inputs)
    session = onnxruntime.InferenceSession(file.path)
    names = [one.name for one in session.get_inputs()]
    fed = {name: one.numpy() for name, one in zip(names, inputs, strict=True)}
    torch.testing.assert_close(torch.as_tensor(session.run(None, fed)[0]), model(*inputs))


def test_models_are_exported_by_threads(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        models = [nn.Sequential(nn.Linear(8, width), nn.ReLU()).eval() for width in (3, 4, 5)]
        paths = [tmp_path / f"{number}.onnx" for number in range(3)]
        list(pool.map(lambda model, path: nncfx.export_onnx(model, path, X), models, paths))
    for model, path in zip(models, paths, strict=True):
        session = onnxruntime.InferenceSession(path)
        (found,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
        torch.testing.assert_close(torch.as_tensor(found), model(X))
