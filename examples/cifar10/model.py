"""ResNet-20 for CIFAR-10 with shortcuts that have no parameters ("option A").

Source: He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition, 2015, section 4.2.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

WEIGHTS = "weights/resnet20_cifar10_optA.safetensors"


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: the identity, or every second pixel, zero-padded."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        """Halve the image where `stride` is 2."""
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.padding = (channels - in_channels) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x c x h x w activations."""
        shortcut = x
        if self.padding:
            shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet(nn.Module):
    """Three stages of `blocks` blocks with 16, 32 and 64 channels: depth 6 * blocks + 2."""

    def __init__(self, blocks: int = 3, classes: int = 10) -> None:
        """Make the network with PyTorch's default weights."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self._stage(16, 16, blocks, stride=1)
        self.layer2 = self._stage(16, 32, blocks, stride=2)
        self.layer3 = self._stage(32, 64, blocks, stride=2)
        self.linear = nn.Linear(64, classes)

    @staticmethod
    def _stage(in_channels: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
        first = BasicBlock(in_channels, channels, stride)
        return nn.Sequential(
            first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x 10 logits of n x 3 x 32 x 32 normalised images."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(F.adaptive_avg_pool2d(x, 1).flatten(1))


def pretrained(folder: Path) -> ResNet:
    """Return the trained ResNet-20 whose weights lie in `folder`, in eval mode."""
    model = ResNet()
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model.eval()
