"""Promises of nncfx.export.capture.exportable_calls, beside those of the forms themselves."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

import nncfx
from onnx_files import assert_file_agrees, run_file
from small_models import Function

X = torch.linspace(-1, 1, 24).view(3, 8)


def policy(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return an action and how likely it is, as actor-critics do."""
    chosen = Normal(m.mean(x), m.deviation(x).exp())
    return chosen.mean, chosen.log_prob(chosen.mean + 0.1).sum(1)


@pytest.mark.parametrize("is_quantized", [False, True])
def test_a_policy_is_exported_with_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_quantized: bool
) -> None:
    monkeypatch.setattr(Distribution, "_validate_args", True)  # gpytorch sets it to False
    torch.manual_seed(0)
    model = Function(policy, mean=nn.Linear(8, 2), deviation=nn.Linear(8, 2)).eval()
    if is_quantized:
        model = nncfx.quantize(model, [X])
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", X)
    found = run_file(file, X)
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
    torch.manual_seed(0)
    model = Function(
        lambda m, indices, weights: m.bag(indices, per_sample_weights=weights),
        bag=nn.EmbeddingBag(50, 8, mode="sum"),
    )
    inputs = (torch.randint(0, 50, (4, 5)), torch.rand(4, 5))
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
        assert_file_agrees(path, model, X)


class Loss(nn.Module):
    """Of 8 classes along axis 1; the classes come with the logits, or are probabilities."""

    def __init__(self, ndim: int, *, is_class: bool, **options: Any) -> None:  # noqa: ANN401 (torch's own)
        super().__init__()
        self.ndim, self.is_class = ndim, is_class
        self.loss = nn.CrossEntropyLoss(**options)

    def forward(self, x: Tensor) -> Tensor:
        x = x[0] if self.ndim == 1 else x
        x = x.unsqueeze(-1).expand(3, 8, 2) * torch.tensor([1.0, -2.0]) if self.ndim == 3 else x
        axis = min(x.ndim - 1, 1)
        target = (x.argmax(axis) + 3) % 8 if self.is_class else (2 * x).softmax(axis).flip(axis)
        result: Tensor = self.loss(100 * x, target)
        return result


@pytest.mark.parametrize(
    ("options", "reduction"),
    [
        ("", "none"),
        ("smoothed", "sum"),
        ("smoothed", "mean"),
        ("weighted", "mean"),
        ("smoothed weighted", "mean"),
    ],
)
@pytest.mark.parametrize("is_class", [True, False])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_cross_entropies_are_torchs(
    ndim: int, options: str, reduction: str, tmp_path: Path, *, is_class: bool
) -> None:
    named: dict[str, Any] = {"reduction": reduction}
    if "smoothed" in options:
        named["label_smoothing"] = 0.3
    if "weighted" in options:
        named["weight"] = torch.linspace(1, 3, 8)
    if is_class:
        named["ignore_index"] = 5  # of the second row
    model = Loss(ndim, is_class=is_class, **named)
    x = X + torch.eye(8)[[1, 2, 4]]
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", x, dynamic_batch=False)
    assert_file_agrees(file, model, x, rtol=1e-5, atol=1e-5)


class ReadThroughData(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight.data, self.bias)


class WrittenThroughData(nn.Linear):
    """Keeps the rows of its weight at length 1, past autograd."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.copy_(nn.functional.normalize(self.weight.data, dim=1))
        return super().forward(x)


class Codebook(nn.Linear):
    """Returns the nearest row of its weight, as vector quantizers do."""

    def forward(self, x: Tensor) -> Tensor:
        away = (x[:, None] - self.weight.data[None]).square().sum(-1)
        return nn.functional.embedding(away.argmin(-1), self.weight.data)


@pytest.mark.parametrize("is_quantized", [False, True])
@pytest.mark.parametrize("layer", [ReadThroughData, WrittenThroughData, Codebook])
def test_weights_that_are_reached_through_data_are_exported(
    layer: type[nn.Linear], tmp_path: Path, *, is_quantized: bool
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), layer(8, 8)).eval()
    if is_quantized:
        model = nncfx.quantize(model, [X])
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", X)
    assert_file_agrees(file, model, X, rtol=1e-3, atol=1e-3)
