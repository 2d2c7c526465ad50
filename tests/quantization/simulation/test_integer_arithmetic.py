"""A quantized model that computes as integer kernels do returns what ONNX Runtime returns."""

import platform
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.errors import ArgumentError
from nncfx.quantization import integer_arithmetic
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.runtimes import IntegerKernels, integer_kernels
from onnx_files import run_file


class Mixed(nn.Module):
    """Convolutions with batch norms of either sign, what stands between them, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(16)
        self.mix = nn.Conv2d(16, 16, 1)
        self.after = nn.Conv2d(32, 16, 3, stride=2)
        self.head = nn.Linear(16, 5)
        for norm in (self.norm, self.depthwise_norm):
            norm.running_mean = torch.randn(16)
            norm.running_var = torch.rand(16) + 0.5
            norm.weight.data = torch.randn(16)
            norm.bias.data = torch.randn(16)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.stem(x))), 2)
        y = F.relu6(self.depthwise_norm(self.depthwise(x)))
        x = torch.relu(x + self.mix(y))
        x = torch.relu(self.after(torch.cat((x, y), 1)))
        return self.head(x.mean((2, 3)))


OF_X86 = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="sums are those of x86"
)


def executed(path: Path, x: Tensor) -> Tensor:
    return torch.as_tensor(run_file(path, x)[0])


def kernels_of_exact(
    model: nn.Module, x: Tensor, folder: Path, *, dynamic_batch: bool = True
) -> IntegerKernels:
    """Return the kernels of the model's file, which computes every bit of what the model does."""
    file = nncfx.export_onnx(model, folder / "int8.onnx", x, dynamic_batch=dynamic_batch)
    with integer_arithmetic(model):
        assert torch.equal(model(x), executed(file.path, x))
    return integer_kernels(file.path, x)


@OF_X86
@pytest.mark.parametrize("seed", range(3))
def test_every_bit_of_the_output_is_the_runtimes(tmp_path: Path, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(16, 3, 16, 16, generator=generator)
    model = nncfx.quantize(Mixed().eval(), [x])
    path = nncfx.export_onnx(model, tmp_path / "int8.onnx", x).path
    expected = executed(path, x)
    with integer_arithmetic(model):
        assert torch.equal(model(x), expected)
    # not so without: what this is for
    with torch.no_grad():
        assert not torch.equal(model(x), expected)


class Gated(nn.Module):
    """Two gates, a mean over channels, a pooling of windows, a norm behind a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.other = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.squeeze, self.gate = nn.Linear(16, 16), nn.Conv2d(2, 1, 3, padding=1)
        self.norm, self.after = nn.BatchNorm2d(32), nn.Conv2d(32, 8, 3)
        self.norm.running_mean = torch.randn(32) * 0.1
        self.norm.running_var = torch.rand(32) + 0.1
        self.norm.weight.data = torch.randn(32)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        gate = torch.sigmoid(self.squeeze(x.mean((2, 3))))
        x = x * gate.unsqueeze(2).unsqueeze(3).expand_as(x)
        y = torch.cat((x.max(1)[0].unsqueeze(1), x.mean(1).unsqueeze(1)), 1)
        y = F.avg_pool2d(x * torch.sigmoid(self.gate(y)), 2)
        y = torch.cat((y, self.other(F.silu(y))), 1)
        return self.after(torch.relu(self.norm(y)))


@OF_X86
@pytest.mark.parametrize("images", [1, 5])
def test_gates_means_and_norms_elsewhere_are_the_runtimes(tmp_path: Path, images: int) -> None:
    generator = torch.Generator().manual_seed(images)
    x = torch.randn(images, 3, 32, 32, generator=generator)
    model = nncfx.quantize(Gated().eval(), [x])
    kernels_of_exact(model, x, tmp_path, dynamic_batch=False)


class Resized(nn.Module):
    """Images in another size, and the mean of a window that is the image."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.other = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 64, 2, stride=2)
        self.head = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = F.interpolate(x, (10, 10), None, "bilinear", align_corners=True)
        x = torch.relu(self.other(x))
        return self.head(F.avg_pool2d(x, 5).flatten(1))


@OF_X86
def test_resized_and_averaged_images_are_the_runtimes(tmp_path: Path) -> None:
    x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    model = nncfx.quantize(Resized().eval(), [x])
    hooks = {str(site): hook for site, hook in quantizers_of(model).items()}
    scale = {name: hook.scale for name, hook in hooks.items()}
    # pixels lie between others by thirds and means are those of 25: every other one is a tie
    hooks["Resized/interpolate_0|OUTPUT0"].set_qparams(scale["Resized/relu_0|OUTPUT0"] * 2 / 9)
    hooks["Resized/avg_pool2d_0|OUTPUT0"].set_qparams(scale["Resized/relu_1|OUTPUT0"] * 2 / 25)
    kernels_of_exact(model, x, tmp_path)


class Windows(nn.Module):
    """Averages of windows, the last of which may reach beyond the image."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)
        self.pool = nn.AvgPool2d(3, 2, padding, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(torch.relu(self.stem(x))))


@OF_X86
@pytest.mark.parametrize(
    ("size", "padding", "is_told"), [(8, 0, False), (9, 1, False), (8, 1, True)]
)
def test_windows_that_reach_beyond_an_image_count_what_is_there_or_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int, padding: int, *, is_told: bool
) -> None:
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    model = nncfx.quantize(Windows(padding).eval(), [x])
    path = nncfx.export_onnx(model, tmp_path / "int8.onnx", x).path
    assert integer_kernels(path, x).operators["QLinearAveragePool"] == 1
    assert ("averages windows with padding and ceil_mode" in caplog.text) == is_told
    with integer_arithmetic(model):
        assert torch.equal(model(x), executed(path, x)) != is_told


class PreActivated(nn.Module):
    """Tensors that only ReLUs read: two of a convolution's, one behind a pooling of a sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.other = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.third, self.head = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.other(torch.relu(x)) + self.third(torch.relu(x))
        return self.head(torch.relu(F.max_pool2d(x, 2)))


@OF_X86
def test_what_only_relus_read_is_rounded_once_and_never_a_float(tmp_path: Path) -> None:
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = nncfx.quantize(PreActivated().eval(), [x])
    kernels = kernels_of_exact(model, x, tmp_path)
    assert (len(kernels.integer), kernels.float) == (4, ())
    assert kernels.conversions == 2  # the image and the result


class Moved(nn.Module):
    """What `move` makes of a layer's result is read by another."""

    def __init__(self, move: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Linear(16, 32)
        self.move = move

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.move(torch.relu(self.first(x))))


@OF_X86
@pytest.mark.parametrize(
    "move",
    [
        lambda x: x[:, torch.tensor([3, 1, 1])],
        lambda x: x[:, torch.tensor([3, 1]), torch.tensor([0, 15])],
        lambda x: x.roll(3, 2),
        lambda x: x.flip(1),
        lambda x: x.movedim(1, 2),
        lambda x: x.unbind(1)[2],
        lambda x: x.mT,
        lambda x: F.pad(x, (0, 0, 1, 1)),
        lambda x: F.pad(x, (0, 0, 2, 2), mode="reflect"),
        lambda x: torch.cat((x, x), 1),
    ],
)
def test_what_reads_moved_integers_reads_integers(
    tmp_path: Path, move: Callable[[Tensor], Tensor]
) -> None:
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = nncfx.quantize(Moved(move).eval(), [x])
    kernels = kernels_of_exact(model, x, tmp_path, dynamic_batch=False)
    assert (len(kernels.integer), kernels.float) == (2, ())
    # which reads floats and rounds them by itself
    assert "MatMulNBits" not in kernels.operators


def test_the_largest_of_integers_is_an_integer_and_its_reader_computes_in_integers(
    tmp_path: Path,
) -> None:
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten())
    model = nncfx.quantize(nn.Sequential(*layers, nn.Linear(32, 32)), [x])
    kernels = kernels_of_exact(model, x, tmp_path)
    assert len(kernels.integer) == 2
    assert "MatMulNBits" not in kernels.operators


def test_both_of_torchs_functions_for_batch_norms_are_followed() -> None:
    class Normed(nn.Module):
        def __init__(self, *, is_low: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(8, 4, 3)
            self.constants = torch.rand(4, 8) + 0.5
            self.is_low = is_low

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.first(x))
            x = torch.cat((x, x * 0.3), 1)
            weight, bias, mean, variance = self.constants
            if self.is_low:
                x = torch.batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5, False)
            else:
                x = F.batch_norm(x, mean, variance, weight, bias)
            return self.second(x)

    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    results = []
    for is_low in (False, True):
        model = nncfx.quantize(Normed(is_low=is_low).eval(), [x])
        with integer_arithmetic(model):
            results.append(model(x))
    assert torch.equal(*results)


def test_the_model_simulates_in_float_again_behind_the_block() -> None:
    x = torch.randn(4, 3, 16, 16)
    model = nncfx.quantize(Mixed().eval(), [x])
    with torch.no_grad():
        before = model(x)
        with integer_arithmetic(model):
            model(x)
        assert torch.equal(model(x), before)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_model_without_quantizers_is_refused(*, is_wrapped: bool) -> None:
    model = nn.Linear(4, 4)
    if is_wrapped:
        nncfx.wrap(model, torch.randn(1, 4))
    with pytest.raises(ArgumentError, match="has no quantizers"), integer_arithmetic(model):
        pass


def test_a_part_is_called_in_the_block_of_the_whole() -> None:
    x = torch.randn(4, 8)
    whole = nncfx.quantize(nn.Sequential(nn.Sequential(nn.Linear(8, 8)), nn.ReLU()), [x])
    with pytest.raises(ArgumentError, match="pass the whole"), integer_arithmetic(whole[0]):
        pass
    with integer_arithmetic(whole):
        assert torch.equal(whole[0](x).relu(), whole(x))


def _first_row_away(x: Tensor) -> Tensor:
    x[:1] = 0.3
    return x


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.mul_(0.3),
        lambda x: F.elu(x, inplace=True),
        lambda x: F.leaky_relu(x, 0.3, inplace=True),
        _first_row_away,
    ],
)
def test_what_is_changed_in_place_is_no_integer_any_more(
    change: Callable[[Tensor], Tensor],
) -> None:
    class Changed(nn.Module):
        def __init__(self, *, in_place: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.in_place = in_place

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.second(change(x if self.in_place else x * 1))

    x = torch.randn(4, 8)
    results = []
    for in_place in (True, False):
        model = nncfx.quantize(Changed(in_place=in_place), [x])
        with integer_arithmetic(model):
            results.append(model(x))
    assert torch.equal(*results)
