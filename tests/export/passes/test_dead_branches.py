"""A branch of which thinning left a constant is not in the file; what is computed stays."""

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import nncfx
from nncfx.export import export_onnx
from nncfx.runtimes import integer_kernels
from onnx_files import run_file


class Residual(nn.Module):
    """A stem, a branch that is added to it, and a head."""

    def __init__(self, stem: nn.Module, branch: nn.Module) -> None:
        super().__init__()
        self.stem, self.branch = stem, branch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        return torch.relu(x + self.branch(x))


def convolutional(
    *, is_dead: bool = True, has_bias: bool = True, reads_zeros: bool = False, pooled: bool = False
) -> Residual:
    torch.manual_seed(0)
    first, last = nn.Conv2d(6, 2, 3, padding=1), nn.Conv2d(2, 6, 3, padding=1, bias=has_bias)
    pool = nn.AdaptiveAvgPool2d(1) if pooled else nn.Identity()
    if is_dead:
        nn.init.zeros_(last.weight)
    if reads_zeros:
        nn.init.zeros_(first.weight)
        first.bias = None
    return Residual(nn.Conv2d(3, 6, 3), nn.Sequential(pool, first, nn.ReLU(), last)).eval()


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def in_runtime(path: Path, inputs: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(run_file(path, inputs)[0])


IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("has_bias", [True, False])
def test_of_a_dead_branch_its_bias_is_added(tmp_path: Path, *, has_bias: bool) -> None:
    model = convolutional(has_bias=has_bias)
    path = export_onnx(model, tmp_path / "m.onnx", IMAGES).path
    assert operators(path).count("Conv") == 1
    torch.testing.assert_close(in_runtime(path, IMAGES), model(IMAGES))


class TwoBranches(nn.Module):
    """A sum of two branches, and of nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3), nn.Conv2d(3, 6, 3)
        nn.init.zeros_(self.first.weight)
        nn.init.zeros_(self.second.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) + self.second(x)


def test_of_two_dead_branches_that_are_added_one_keeps_the_shape(tmp_path: Path) -> None:
    model = TwoBranches().eval()
    path = export_onnx(model, tmp_path / "m.onnx", IMAGES).path
    assert operators(path) == ["Conv", "Add"]
    torch.testing.assert_close(in_runtime(path, IMAGES), model(IMAGES))


def test_a_branch_of_linear_layers_goes_as_well(tmp_path: Path) -> None:
    torch.manual_seed(0)
    last = nn.Linear(2, 6)
    nn.init.zeros_(last.weight)
    branch = nn.Sequential(nn.Linear(6, 2), nn.GELU(), last)
    model, inputs = Residual(nn.Linear(4, 6), branch).eval(), torch.randn(5, 3, 4)
    path = export_onnx(model, tmp_path / "m.onnx", inputs).path
    assert "Erf" not in operators(path)
    assert "Gelu" not in operators(path)
    torch.testing.assert_close(in_runtime(path, inputs), model(inputs))


class ChannelsLast(nn.Module):
    """A branch of linear layers over channels, and a scale, as ConvNeXt has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 2), nn.Linear(2, 6)
        self.scale = nn.Parameter(torch.rand(6))
        nn.init.zeros_(self.last.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.last(self.first(x.permute(0, 2, 3, 1)).relu()) * self.scale
        return x.permute(0, 3, 1, 2)


def test_a_scaled_branch_with_its_channels_last_goes_as_well(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Residual(nn.Conv2d(3, 6, 3), ChannelsLast()).eval()
    path = export_onnx(model, tmp_path / "m.onnx", IMAGES).path
    assert operators(path) == ["Conv", "Relu", "BatchNormalization"]
    torch.testing.assert_close(in_runtime(path, IMAGES), model(IMAGES))


@pytest.mark.parametrize("model", [convolutional(is_dead=False), convolutional(pooled=True)])
def test_what_lives_or_is_added_to_each_pixel_anew_stays(tmp_path: Path, model: Residual) -> None:
    path = export_onnx(model, tmp_path / "m.onnx", IMAGES).path
    assert operators(path).count("Conv") == 3
    torch.testing.assert_close(in_runtime(path, IMAGES), model(IMAGES))


def test_a_dead_layer_whose_output_is_wanted_stays(tmp_path: Path) -> None:
    model = nn.Conv2d(3, 6, 3)
    nn.init.zeros_(model.weight)
    path = export_onnx(model.eval(), tmp_path / "m.onnx", IMAGES).path
    assert operators(path) == ["Conv"]


def test_in_int8_the_sum_reads_a_constant(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="is zero on all calibration data"):
        model = nncfx.quantize(convolutional(reads_zeros=True), [IMAGES])
    result = export_onnx(model, tmp_path / "m.onnx", IMAGES)
    assert operators(result.path).count("Conv") == 1
    assert integer_kernels(result, IMAGES).float == ()
    step = model(IMAGES).unique().diff().min()
    assert (in_runtime(result.path, IMAGES) - model(IMAGES)).abs().max() < 1.01 * step


def test_branches_pruned_whole_take_their_layers_along(tmp_path: Path) -> None:
    from pytorchcv.models.resnet_cifar import resnet20_cifar10  # noqa: PLC0415 (of this test)

    torch.manual_seed(0)
    model, image = resnet20_cifar10().eval(), torch.randn(1, 3, 32, 32)
    config = {
        "compression": {
            "algorithm": "branch_pruning",
            "pruning_init": 0.5,
            "params": {"schedule": "baseline"},
        }
    }
    controller, _ = nncfx.create_compressed_model(model, config, image)
    thin = nncfx.thin(controller.strip().eval(), image).model
    path = export_onnx(thin, tmp_path / "m.onnx", image).path
    # a stem, two shortcuts, and two convolutions in each of 9 blocks, of which 4 go
    assert operators(path).count("Conv") == 1 + 2 + 2 * (9 - 4)
    torch.testing.assert_close(in_runtime(path, image), thin(image), rtol=1e-4, atol=1e-5)
