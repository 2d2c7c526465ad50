"""The two networks of Condensa's CIFAR-10 figures: ResNet-56 and VGG-19 with batch norms."""

from pathlib import Path

import torch
from data import MEAN, STD
from model import ResNet
from safetensors.torch import load_file
from torch import nn

_WIDTHS = (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0)
_MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1) * 255
_STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1) * 255


class VGG(nn.Module):
    """VGG-19 with batch norms and one linear layer; takes images as `data` normalises them."""

    def __init__(self) -> None:
        """Make the network with PyTorch's default weights."""
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in _WIDTHS:
            if not width:
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            layers.append(nn.ReLU())
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(512, 10)
        # it was trained with a mean and deviation of its own
        self.register_buffer("scale", STD / _STD, persistent=False)
        self.register_buffer("shift", (MEAN - _MEAN) / _STD, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x 10 logits of n x 3 x 32 x 32 normalised images."""
        return self.classifier(self.features(x * self.scale + self.shift).flatten(1))


NETWORKS = {
    "resnet56": (lambda: ResNet(9), "resnet56_cifar10_optA"),
    "vgg19_bn": (VGG, "vgg19_bn_cifar10"),
}
"""How each network is made, and the name of its weights."""


def pretrained(name: str, folder: Path) -> nn.Module:
    """Return the trained network `name` whose weights lie in `folder`, float32, in eval mode."""
    make, weights = NETWORKS[name]
    model = make()
    model.load_state_dict(load_file(folder / "weights" / f"{weights}.safetensors"))
    return model.float().eval()
