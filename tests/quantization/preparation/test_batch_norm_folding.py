"""Batch norms in the layers before them."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.quantization.preparation.batch_norm_folding import fold_batch_norms
from small_models import Function


def unsettle(model: nn.Module) -> nn.Module:
    """Give every batch norm statistics and parameters of its own."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            for tensor in (module.running_mean, module.running_var, *module.parameters()):
                if tensor is not None:
                    tensor.data.uniform_(0.5, 1.5, generator=generator)
    return model.double().eval()


def check_exact(model: nn.Module, inputs: Tensor, folded: tuple[str, ...]) -> None:
    unsettle(model)
    inputs = inputs.double()
    with torch.no_grad():
        before = model(inputs)
        assert fold_batch_norms(model, inputs) == folded
        # fold and forward are in float64: some hundred roundings of 1e-16
        torch.testing.assert_close(model(inputs), before, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), (2, 4, 5, 5)),
        (nn.Sequential(nn.Conv1d(4, 6, 3, bias=False), nn.BatchNorm1d(6)), (2, 4, 5)),
        (nn.Sequential(nn.Conv3d(2, 3, 1), nn.BatchNorm3d(3, affine=False)), (2, 2, 3, 3, 3)),
        (nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), (2, 4, 5, 5)),
        (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), (2, 4)),
    ],
)
def test_a_folded_model_computes_what_it_did(model: nn.Module, shape: tuple[int, ...]) -> None:
    check_exact(model, torch.randn(shape), ("1",))


def test_every_batch_norm_of_a_published_residual_network_folds_exactly() -> None:
    resnet = pytest.importorskip("pytorchcv.models.resnet")
    model = resnet.resnet18(in_size=(224, 224))
    names = tuple(name for name, one in model.named_modules() if isinstance(one, nn.BatchNorm2d))
    unsettle(model)
    images = torch.randn(1, 3, 224, 224).double()
    with torch.no_grad():
        before = model(images)
        assert set(fold_batch_norms(model, images)) == set(names)
        torch.testing.assert_close(model(images), before, rtol=1e-12, atol=1e-12)
    assert not any(isinstance(one, nn.BatchNorm2d) for one in model.modules())


def test_by_hand_the_scale_goes_into_the_weight_and_the_mean_into_the_bias() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, eps=0.0)).eval()
    linear, norm = model[0], model[1]
    assert isinstance(linear, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    values = {linear.weight: 3.0, linear.bias: 1.0, norm.weight: 2.0, norm.bias: 5.0}
    for parameter, value in values.items():
        parameter.data.fill_(value)
    norm.running_mean, norm.running_var = torch.tensor([7.0]), torch.tensor([4.0])
    fold_batch_norms(model, torch.zeros(2, 1))
    assert (linear.weight.item(), linear.bias.item()) == (3.0, -1.0)  # 3 * 2/2, (1 - 7) + 5


CONV = nn.Conv2d(2, 2, 1)


@pytest.mark.parametrize(
    "model",
    [
        Function(lambda m, x: m.norm(y := m.conv(x)) + y, conv=CONV, norm=nn.BatchNorm2d(2)),
        nn.Sequential(CONV, nn.BatchNorm2d(2), CONV, nn.BatchNorm2d(2)),
    ],
    ids=["read twice", "called twice"],
)
def test_a_batch_norm_that_cannot_fold_exactly_stays(model: nn.Module) -> None:
    check_exact(model, torch.randn(2, 2, 3, 3), ())


def test_a_batch_norm_over_the_wrong_axis_of_a_linear_layer_stays() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(5))
    check_exact(model, torch.randn(2, 5, 4), ())


def test_a_batch_norm_without_running_statistics_stays() -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2, track_running_stats=False))
    assert fold_batch_norms(model, torch.randn(2, 2, 3, 3)) == ()


def test_a_wrapped_model_stays_wrapped_with_the_graph_of_the_folded_one() -> None:
    inputs = torch.randn(2, 2, 3, 3)
    model = nncfx.wrap(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)), inputs)
    fold_batch_norms(model, inputs)
    assert model.nncf.graph.addresses == ["Sequential/Conv2d[0]/conv2d_0"]


def test_a_model_with_hooks_is_refused() -> None:
    inputs = torch.randn(2, 2, 3, 3)
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
    config = nncfx.NNCFConfig.from_dict(
        {
            "input_info": {"sample_size": [2, 2, 3, 3]},
            "compression": {"algorithm": "magnitude_sparsity"},
        }
    )
    _, model = nncfx.create_compressed_model(model, config, inputs)
    with pytest.raises(ArgumentError, match=r"has 1 hooks.*Do it before compressing"):
        fold_batch_norms(model, inputs)


class Frozen(nn.Module):
    """As torchvision, Detectron2 and DETR have it; DETR keeps its epsilon to itself."""

    def __init__(self, count: int, *, tells: bool, shifted: float = 0.0) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(count) + 0.5)
        self.shifted = shifted
        if tells:
            self.eps = 1e-3

    def forward(self, x: Tensor) -> Tensor:
        held = (self.weight, self.bias, self.running_mean, self.running_var)
        weight, bias, mean, variance = (one.view(1, -1, 1, 1) for one in held)
        scale = weight * (variance + getattr(self, "eps", 1e-5)).rsqrt()
        return x * scale + (bias - mean * scale) + self.shifted


@pytest.mark.parametrize("tells", [True, False])
def test_a_frozen_norm_is_folded_by_quantize_and_loaded_again(
    tmp_path: Path, *, tells: bool
) -> None:
    def fresh() -> nn.Module:
        torch.manual_seed(0)
        norm = Frozen(4, tells=tells)
        return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), norm, nn.ReLU(), nn.Conv2d(4, 2, 1))

    model = fresh().eval()
    check_exact(copy.deepcopy(model), torch.randn(2, 3, 6, 6), ("1",))
    images = torch.randn(4, 3, 6, 6)
    quantized = nncfx.quantize(model, [images])
    kinds = [one.function for one in quantized.nncf.graph.operations]
    assert kinds == ["conv2d", "relu", "conv2d"]
    path = nncfx.save(tmp_path / "m.safetensors", quantized)
    assert torch.equal(nncfx.load(path, fresh())[1].eval()(images), quantized(images))


def test_what_only_has_the_buffers_of_a_norm_stays() -> None:
    norm = Frozen(4, tells=True, shifted=0.1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), norm).eval()
    assert fold_batch_norms(model, torch.randn(1, 3, 6, 6)) == ()


def test_a_frozen_norm_that_is_called_twice_stays() -> None:
    model = Function(
        lambda m, x: m.norm(m.first(x)) + m.norm(m.second(x)),
        first=nn.Conv2d(3, 4, 1),
        second=nn.Conv2d(3, 4, 1),
        norm=Frozen(4, tells=True),
    )
    assert fold_batch_norms(model.eval(), torch.randn(1, 3, 6, 6)) == ()
