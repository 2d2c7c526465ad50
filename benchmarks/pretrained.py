"""The pretrained CIFAR-10 and MNIST networks of the shared data, with their test sets.

Source of the weights: README.md beside them.
"""

import functools
import gzip
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

_IMAGENET: Final = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CIFAR: Final = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
_HALVES: Final = ((0.5,) * 3, (0.5,) * 3)
_MNIST: Final = ((0.1307,), (0.3081,))


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut, option A (padded) or B (a 1 x 1 convolution)."""

    def __init__(self, before: int, channels: int, stride: int, *, projected: bool) -> None:
        """Halve the image where `stride` is 2."""
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.padding = 0 if projected else (channels - before) // 2
        self.downsample = nn.Sequential()
        if projected and channels != before:
            self.downsample.append(nn.Conv2d(before, channels, 1, stride=stride, bias=False))
            self.downsample.append(nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return n x c x h x w activations."""
        shortcut = self.downsample(x)
        if self.padding:
            shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet(nn.Module):
    """A CIFAR ResNet of depth 6 * blocks + 2, its classifier named `head`."""

    def __init__(self, blocks: int, *, projected: bool, head: str) -> None:
        """Make it with PyTorch's default weights."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        widths = (16, 16, 32, 64)
        for stage in (1, 2, 3):
            before, channels = widths[stage - 1], widths[stage]
            layers = [Block(before, channels, 1 + (stage > 1), projected=projected)]
            layers += [
                Block(channels, channels, 1, projected=projected) for _ in range(blocks - 1)
            ]
            setattr(self, f"layer{stage}", nn.Sequential(*layers))
        self.head = head
        setattr(self, head, nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Return n x 10 logits of n x 3 x 32 x 32 normalised images."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return getattr(self, self.head)(F.adaptive_avg_pool2d(x, 1).flatten(1))


class VGG19(nn.Module):
    """VGG-19 with batch norms and one linear layer."""

    def __init__(self) -> None:
        """Make it with PyTorch's default weights."""
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for count, width in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
            for _ in range(count):
                layers.append(nn.Conv2d(before, width, 3, padding=1, bias=False))
                layers += [nn.BatchNorm2d(width), nn.ReLU()]
                before = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return n x 10 logits of n x 3 x 32 x 32 normalised images."""
        return self.classifier(self.features(x).flatten(1))


class LeNet5(nn.Module):
    """Caffe's LeNet-5."""

    def __init__(self) -> None:
        """Make it with PyTorch's default weights."""
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return n x 10 logits of n x 1 x 28 x 28 normalised images."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class LeNet300(nn.Module):
    """LeNet-300-100: three linear layers."""

    def __init__(self) -> None:
        """Make it with PyTorch's default weights."""
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 300), nn.Linear(300, 100), nn.Linear(100, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return n x 10 logits of n x 1 x 28 x 28 normalised images."""
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


@functools.cache
def cifar10_test(folder: Path) -> tuple[np.ndarray, Tensor]:
    """Return the pixels of the test set, n x 3 x 32 x 32 uint8, and its labels."""
    with np.load(folder / "data" / "cifar10_test.npz") as file:
        return file["x"], torch.from_numpy(file["y"].astype(np.int64))


def cifar10_train(folder: Path, count: int | None = None) -> tuple[np.ndarray, Tensor]:
    """Return the same of the training set, the first `count` images if given."""
    with np.load(folder / "data" / "cifar10_train.npz") as file:
        # the file holds differences along rows and columns, and of red and blue to green
        rows = np.cumsum(file["d"][:count], axis=2, dtype=np.uint8)
        labels = file["y"][:count].astype(np.int64)
    pixels = np.cumsum(rows, axis=3, dtype=np.uint8)
    pixels[:, 0] += pixels[:, 1]
    pixels[:, 2] += pixels[:, 1]
    return pixels, torch.from_numpy(labels)


@dataclass(frozen=True)
class Pretrained:
    """A pretrained network: how to make it, its weights, and the normalization of its images."""

    make: Callable[[], nn.Module]
    weights: str
    normalization: tuple[tuple[float, ...], tuple[float, ...]]
    is_cifar: bool = True

    def load(self, folder: Path) -> nn.Module:
        """Return the network with the weights in `folder`, in evaluation mode."""
        model = self.make()
        # some files lack the counters of batch norms
        missing, extra = model.load_state_dict(
            load_file(folder / "weights" / f"{self.weights}.safetensors"), strict=False
        )
        if extra or not all(one.endswith("num_batches_tracked") for one in missing):
            raise ValueError(f"{self.weights} does not fit: {missing}, {extra}")
        return model.eval()

    def images(self, pixels: np.ndarray) -> Tensor:
        """Return normalised images of uint8 pixels, n x c x h x w."""
        mean, std = (torch.tensor(one).view(-1, 1, 1) for one in self.normalization)
        return (torch.from_numpy(pixels).float() / 255 - mean) / std

    def test(self, folder: Path, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Return images and labels of the test set, the first `count` if given."""
        if self.is_cifar:
            pixels, labels = cifar10_test(folder)
            return self.images(pixels[:count]), labels[:count]
        images, labels = self._mnist(folder, "t10k")
        return images[:count], labels[:count]

    def train(self, folder: Path, count: int | None = None) -> tuple[Tensor, Tensor]:
        """Return images and labels of the training set, the first `count` if given."""
        if not self.is_cifar:
            images, labels = self._mnist(folder, "train")
            return images[:count], labels[:count]
        pixels, labels = cifar10_train(folder, count)
        return self.images(pixels), labels

    def _mnist(self, folder: Path, part: str) -> tuple[Tensor, Tensor]:
        with gzip.open(folder / "data" / "mnist" / f"{part}-images-idx3-ubyte.gz") as file:
            pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
        with gzip.open(folder / "data" / "mnist" / f"{part}-labels-idx1-ubyte.gz") as file:
            labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
        return self.images(pixels.copy()), torch.from_numpy(labels)


class Settled(Pretrained):
    """A model of pytorchcv with random weights, whose batch norms have seen images of CIFAR-10."""

    def load(self, folder: Path) -> nn.Module:
        """Return the model for images of 224 x 224 pixels and ten classes, in evaluation mode."""
        torch.manual_seed(0)
        model = self.make()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = None
        with torch.no_grad():
            model.train()(self.train(folder, 64)[0])
        return model.eval()

    def images(self, pixels: np.ndarray) -> Tensor:
        """Return normalised images, each pixel 49 times."""
        return super().images(pixels).repeat_interleave(7, 2).repeat_interleave(7, 3)


def named(name: str) -> Pretrained:
    """Return one of `PRETRAINED`, or "family.model" of pytorchcv."""
    if name in PRETRAINED:
        return PRETRAINED[name]
    family, _, model = name.partition(".")
    make = getattr(importlib.import_module(f"pytorchcv.models.{family}"), model)
    return Settled(lambda: make(num_classes=10), "", _HALVES)


PRETRAINED: Final = {
    "resnet20-A": Pretrained(
        lambda: ResNet(3, projected=False, head="linear"), "resnet20_cifar10_optA", _IMAGENET
    ),
    "resnet20-B": Pretrained(
        lambda: ResNet(3, projected=True, head="fc"), "resnet20_cifar10_optB_dense", _HALVES
    ),
    "resnet56-A": Pretrained(
        lambda: ResNet(9, projected=False, head="linear"), "resnet56_cifar10_optA", _IMAGENET
    ),
    "vgg19_bn": Pretrained(VGG19, "vgg19_bn_cifar10", _CIFAR),
    "lenet5": Pretrained(LeNet5, "lenet5_mnist", _MNIST, is_cifar=False),
    "lenet300": Pretrained(LeNet300, "lenet300_100_mnist", _MNIST, is_cifar=False),
}
"""The networks by name."""
