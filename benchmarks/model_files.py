"""File sizes of pretrained CIFAR-10 networks, pruned and clustered without training.

Beside them stands what a footprint would claim: the bytes of their non-zero parameters.

    python benchmarks/model_files.py --data ../shared/data
"""

import argparse
import copy
import tempfile
from pathlib import Path

import torch
from pretrained import PRETRAINED, Pretrained
from rich.progress import track
from torch import nn

import nncfx
from nncfx.schemes import Cluster, Compose, Prune

_WIDTHS = (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0)
_CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


class VGG19(nn.Module):
    """VGG-19 with batch norms for 32 x 32 images; 0 among the widths is a pooling."""

    def __init__(self) -> None:
        """Make it with PyTorch's default weights."""
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width in _WIDTHS:
            if not width:
                layers.append(nn.MaxPool2d(2))
                continue
            convolution = nn.Conv2d(before, width, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
            before = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x 10 logits of n x 3 x 32 x 32 images."""
        return self.classifier(self.features(x).flatten(1))


NETWORKS = {
    "ResNet-56": PRETRAINED["resnet56-A"],
    "VGG-19-BN": Pretrained(VGG19, "vgg19_bn_cifar10", _CIFAR),
}


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the percentage of `images` that `model` gets right."""
    model.eval()
    found = torch.cat([model(part).argmax(1) for part in images.split(250)])
    return 100 * float((found == labels).float().mean())


def row(name: str, level: float, model: nn.Module, right: float) -> str:
    """Return one line of the table."""
    left = sum(int(one.count_nonzero()) for one in model.parameters())
    whole = sum(one.numel() for one in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.nncfx"
        size = nncfx.storage.save(path, model, signed_zeros=False).size_bytes
    return (
        f"| {name} | {level} | {right:.1f} % | {4 * left:,} | {whole / left:.1f}x "
        f"| {size:,} | {4 * whole / size:.1f}x |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--images", type=int, default=1000, help="test images to judge by")
    parser.add_argument("--bits", type=int, default=5, help="bits of a code")
    options = parser.parse_args()
    print(
        "| network | level | accuracy | footprint | | file | |\n|---|---|---|---:|---:|---:|---:|"
    )
    for name, network in NETWORKS.items():
        dense = network.load(options.data)
        images, labels = (part[: options.images] for part in network.test(options.data))
        print(row(name, 0.0, dense, accuracy(dense, images, labels)))
        for level in track((0.3, 0.5, 0.7, 0.9), description=name, transient=True):
            model = copy.deepcopy(dense)
            Compose([Prune(), Cluster(bits=options.bits)]).compress(model, level)
            print(row(name, level, model, accuracy(model, images, labels)))


if __name__ == "__main__":
    main()
