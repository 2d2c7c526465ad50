"""LeNet-300-100 and LeNet-5, as Deep Compression takes them, with their pretrained weights.

Source: LeCun et al. (1998); the sizes are those of Caffe's examples.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F


class LeNet300(nn.Module):
    """Two hidden layers of 300 and 100."""

    def __init__(self) -> None:
        """Make the network with PyTorch's default weights."""
        super().__init__()
        self.fc1 = nn.Linear(784, 300)
        self.fc2 = nn.Linear(300, 100)
        self.fc3 = nn.Linear(100, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x 10 logits of n x 1 x 28 x 28 images."""
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class LeNet5(nn.Module):
    """Two convolutions of 20 and 50 filters, then a hidden layer of 500."""

    def __init__(self) -> None:
        """Make the network with PyTorch's default weights."""
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x 10 logits of n x 1 x 28 x 28 images."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


NETWORKS = {"lenet300": LeNet300, "lenet5": LeNet5}
WEIGHTS = {"lenet300": "lenet300_100_mnist.safetensors", "lenet5": "lenet5_mnist.safetensors"}


def pretrained(name: str, folder: Path) -> nn.Module:
    """Return the network `name` with the weights in `folder`."""
    model = NETWORKS[name]()
    model.load_state_dict(load_file(folder / "weights" / WEIGHTS[name]))
    return model
