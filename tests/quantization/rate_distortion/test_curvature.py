"""Curvature is the Gauss-Newton matrix of the outputs."""

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.quantization.rate_distortion.curvature import measure_curvature, split_batch


def test_the_diagonal_of_a_linear_layer_is_the_energy_of_its_inputs() -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(3, 4), torch.randn(512, 3) * torch.tensor([1.0, 2.0, 3.0])
    found = measure_curvature(layer, [inputs])
    # dy_o / dw_oi = x_i; as a share of the outputs' squares, batch by batch
    shares = [
        batch.square().sum(0) / layer(batch).square().sum().detach() for batch in inputs.split(16)
    ]
    wanted = torch.stack(shares).mean(0)
    # 32 draws of each of 4 rows: a relative error of about sqrt(2 / 128), three times that
    torch.testing.assert_close(found.diagonal["weight"].mean(0), wanted, rtol=0.4, atol=0)
    torch.testing.assert_close(found.moments["weight"][0], inputs.T @ inputs, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2, bias=False), (20, 4, 7, 7)),
        (nn.Conv2d(2, 3, (3, 2), padding="same", dilation=2, bias=False), (3, 2, 6, 5)),
        (nn.Conv1d(2, 3, 3, padding=2, bias=False), (3, 2, 9)),
    ],
)
def test_moments_give_the_energy_of_a_convolutions_outputs(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(shape)
    moments = measure_curvature(layer, [inputs]).moments["weight"]
    weight = layer.weight.detach().flatten(1)
    groups = weight.view(len(moments), -1, weight.shape[1])
    energy = torch.einsum("gri,gij,grj->gr", groups, moments, groups).flatten()
    outputs = layer(inputs).detach().transpose(0, 1).flatten(1)
    torch.testing.assert_close(energy, outputs.square().sum(1), rtol=1e-4, atol=1e-4)


def test_the_model_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad_(False)
    measure_curvature(model, [torch.randn(4, 3)])
    assert not model[0].weight.requires_grad
    assert all(one.grad is None for one in model.parameters())
    assert not model[0]._forward_pre_hooks


def test_no_batches_and_no_gradients_are_refused() -> None:
    with pytest.raises(ArgumentError, match="batches is empty"):
        measure_curvature(nn.Linear(2, 2), [])
    with pytest.raises(ArgumentError, match="depend on none"):
        measure_curvature(nn.Linear(2, 2), [torch.randn(2, 2)], forward=lambda _, x: x)


def test_parts_of_any_batch_are_found() -> None:
    x = torch.randn(40, 2)
    for batch in (x, (x, x), {"x": x}):
        assert len(list(split_batch(batch))) == 3
    assert list(split_batch("other")) == ["other"]
