"""Batch norms of half the bytes."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.storage import absorb_norm_statistics, load, save


def filled(norm: nn.Module) -> nn.Module:
    with torch.no_grad():
        for tensor in norm.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return norm.eval()


@pytest.mark.parametrize(
    ("norm", "shape"),
    [(nn.BatchNorm1d, (4, 5)), (nn.BatchNorm2d, (4, 5, 3, 3)), (nn.BatchNorm3d, (2, 5, 2, 2, 2))],
)
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_the_model_computes_the_same(norm: type, shape: tuple[int, ...], eps: float) -> None:
    model = nn.Sequential(filled(norm(5, eps=eps)))
    inputs = torch.randn(shape)
    wanted = model.double()(inputs.double())
    assert absorb_norm_statistics(model.float()) == ("0",)
    # some roundings of numbers below 10
    assert torch.allclose(model(inputs).double(), wanted, atol=1e-5)
    assert model[0].running_mean.eq(0).all()
    assert model[0].running_var.eq(1).all()


def test_a_file_is_smaller_by_the_statistics(tmp_path: Path) -> None:
    model = nn.Sequential(*(filled(nn.BatchNorm2d(100)) for _ in range(5)))
    before = save(tmp_path / "before", model).size_bytes
    absorb_norm_statistics(model)
    after = save(tmp_path / "after", model).size_bytes
    # two tensors of four are left, and the header
    assert after < 0.6 * before
    again = load(tmp_path / "after", nn.Sequential(*(nn.BatchNorm2d(100) for _ in range(5))))
    inputs = torch.randn(2, 100, 3, 3)
    assert torch.equal(again.eval()(inputs), model(inputs))


def test_twice_is_once() -> None:
    model = filled(nn.BatchNorm1d(50))
    absorb_norm_statistics(model)
    once = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    absorb_norm_statistics(model)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, once[name], rtol=1e-6, atol=1e-6)


def test_norms_that_share_a_tensor_or_lack_one_stay_bitwise() -> None:
    first, second = filled(nn.BatchNorm1d(5)), filled(nn.BatchNorm1d(5))
    second.weight = first.weight
    others = (nn.BatchNorm1d(5, affine=False), nn.BatchNorm1d(5, track_running_stats=False))
    model = nn.Sequential(first, second, *map(filled, others), filled(nn.LayerNorm(5)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert absorb_norm_statistics(model) == ()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_norm_that_is_used_twice_is_absorbed_once() -> None:
    norm = filled(nn.BatchNorm1d(5))
    model = nn.Sequential(norm, nn.ReLU(), norm)
    inputs = torch.randn(3, 5)
    wanted = model(inputs)
    assert absorb_norm_statistics(model) == ("0",)
    assert torch.allclose(model(inputs), wanted, atol=1e-5)
