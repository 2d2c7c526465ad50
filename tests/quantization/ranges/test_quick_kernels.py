"""What is computed another way while nothing is differentiated."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from typing_extensions import override

import nncfx
from nncfx.quantization.ranges.observation import run_batches
from nncfx.quantization.ranges.quick_kernels import _QuickKernels as QuickKernels
from nncfx.quantization.ranges.quick_kernels import quick_kernels

_Padding = int | str | tuple[int, ...]


class Calls(TorchFunctionMode):
    """Notes what reaches torch, with the layout of the first argument."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, object, Tensor]] = []

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = dict(kwargs or {})
        if getattr(func, "__name__", "") in {"conv1d", "conv2d", "max_pool2d"}:
            read = args[0] if args else call["input"]
            self.found.append((func.__name__, call.get("padding"), read))
        return func(*args, **call)


def images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def with_holes(x: Tensor) -> Tensor:
    return x.masked_fill(x > 1.5, float("nan")).masked_fill(x < -1.5, float("-inf"))


@pytest.mark.parametrize("pool", [F.max_pool2d, torch.max_pool2d])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
        {"kernel_size": (2, 3), "stride": 1, "dilation": 2},
    ],
)
def test_maxima_are_those_of_torch_bit_by_bit_in_its_layout(
    pool: Callable[..., Tensor], options: dict[str, Any]
) -> None:
    x = with_holes(images(2, 8, 11, 13))
    wanted = pool(x, **options)
    with Calls() as calls, QuickKernels():
        found = pool(x, **options)
    assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))
    assert found.is_contiguous()
    ((_, _, read),) = calls.found
    assert read.is_contiguous(memory_format=torch.channels_last)


def test_places_of_maxima_are_those_of_torch() -> None:
    x = images(2, 8, 10, 10)
    with QuickKernels():
        values, places = F.max_pool2d(x, 2, return_indices=True)
    assert torch.equal(places, F.max_pool2d(x, 2, return_indices=True)[1])
    assert torch.equal(values, F.max_pool2d(x, 2))


@pytest.mark.parametrize(
    "x",
    [
        images(2, 3, 8, 8),  # too few channels
        images(2, 8, 8, 8).half(),
        images(8, 8, 8),
        images(2, 8, 8, 8).contiguous(memory_format=torch.channels_last),
    ],
)
def test_other_images_are_pooled_as_they_come(x: Tensor) -> None:
    with Calls() as calls, QuickKernels():
        found = F.max_pool2d(x, 2)
    assert calls.found[0][2] is x
    assert torch.equal(found, F.max_pool2d(x, 2))


@pytest.mark.parametrize(
    ("shape", "kernel", "padding", "left"),
    [
        ((2, 16, 50), (15,), 7, (0,)),
        ((2, 16, 50), (15,), (14,), (0,)),
        ((2, 8, 20, 30), (13, 15), (6, 7), (6, 0)),
        ((2, 8, 20, 30), (13, 13), 6, (6, 0)),
        ((2, 8, 20, 30), (13, 13), (6,), (6, 0)),
    ],
)
@pytest.mark.parametrize("step", [1, 2])
def test_depthwise_convolutions_are_padded_before(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    padding: _Padding,
    left: tuple[int, ...],
    step: int,
) -> None:
    x, weight, bias = images(*shape), images(shape[1], 1, *kernel), images(shape[1])
    convolve: Any = F.conv1d if len(shape) == 3 else F.conv2d
    settings = (step, padding, 1, shape[1])
    wanted = convolve(x.double(), weight.double(), bias.double(), *settings)
    with Calls() as calls, QuickKernels():
        found = convolve(x, weight, bias, *settings)
    assert torch.allclose(found.double(), wanted, atol=1e-4)
    ((_, padded, read),) = calls.found
    assert padded == left
    assert read.shape[-1] > x.shape[-1]


@pytest.mark.parametrize(("groups", "padding"), [(16, 4), (16, "same"), (4, 7), (1, 7)], ids=str)
def test_other_convolutions_stay(groups: int, padding: _Padding) -> None:
    x, weight = images(2, 16, 50), images(16, 16 // groups, 15)
    with Calls() as calls, QuickKernels():
        found = F.conv1d(x, weight, None, 1, padding, 1, groups)
    assert calls.found[0][2] is x
    assert torch.equal(found, F.conv1d(x, weight, None, 1, padding, 1, groups))


def depthwise(kernel: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, kernel, padding=kernel // 2, groups=8), nn.ReLU()
    )


@pytest.mark.parametrize(
    ("model", "gains"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2)), True),
        (depthwise(13), True),
        (depthwise(9), True),
        (depthwise(7), False),
        (nn.Sequential(nn.Conv2d(3, 8, 13, padding=6), nn.AvgPool2d(2)), False),
    ],
)
def test_only_forwards_that_gain_are_looked_into(model: nn.Module, gains: bool) -> None:
    context = quick_kernels(nncfx.wrap(model, images(2, 3, 16, 16)))
    assert isinstance(context, QuickKernels) is gains


def test_calibration_uses_them() -> None:
    model = nncfx.wrap(nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2)), images(2, 3, 8, 8))
    with Calls() as calls:
        run_batches(model, [images(2, 3, 8, 8)])
    ((_, _, read),) = [call for call in calls.found if call[0] == "max_pool2d"]
    assert read.is_contiguous(memory_format=torch.channels_last)


def test_a_depthwise_network_calibrated_with_them_has_the_ranges_of_plain_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.MaxPool2d(2), nn.Conv2d(8, 8, 13, padding=6, groups=8), nn.ReLU()
    ).eval()
    x = images(8, 3, 32, 32)
    quick = nncfx.quantize(model, [x])(x)
    monkeypatch.setattr("nncfx.quantization.ranges.quick_kernels._QUICK", {})
    assert torch.allclose(quick, nncfx.quantize(model, [x])(x), atol=1e-4)
