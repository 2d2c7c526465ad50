"""File sizes of pretrained CIFAR-10 networks, pruned and clustered.

Beside them stands what a footprint would claim: the bytes of their non-zero parameters.

    python benchmarks/model_files.py --data ../shared/data
    python benchmarks/model_files.py --data ../shared/data --train 3000 --levels 0.5 0.7

With `--train`, that many training images are seen twice: while pruning rises to the level, and
while the weights that stay share their values.
"""

import argparse
import copy
import tempfile
from pathlib import Path

import torch
from pretrained import PRETRAINED, Pretrained
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.schemes import Cluster, Compose, Prune

_WIDTHS = (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0)
_BATCH = 50
_HALF = 0.5
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
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the percentage of `images` that `model` gets right."""
    model.eval()
    found = torch.cat([model(part).argmax(1) for part in images.split(250)])
    return 100 * float((found == labels).float().mean())


def trained(
    dense: nn.Module, level: float, bits: int, images: Tensor, labels: Tensor
) -> nn.Module:
    """Return `dense` pruned and clustered in two passes over `images`."""
    steps = -(-len(images) // _BATCH)
    pruning = {
        "algorithm": "magnitude_sparsity",
        "params": {
            "schedule": "cubic",
            "sparsity_target": level,
            "sparsity_target_epoch": 1,
            "sparsity_freeze_epoch": 1,
            "update_per_optimizer_step": True,
            "steps_per_epoch": steps,
        },
    }
    sharing = {"algorithm": "weight_clustering", "bits": bits, "params": {"start_epoch": 1}}
    controller, model = nncfx.create_compressed_model(
        copy.deepcopy(dense), {"compression": [pruning, sharing]}, images[:2]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * steps)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(2):
        controller.scheduler.epoch_step()
        model.train()
        order = torch.randperm(len(images), generator=generator)
        batches = track(order.split(_BATCH), f"pass {epoch + 1} of 2", transient=True)
        for rows in batches:
            controller.scheduler.step()
            x = images[rows]
            mirrored = x.flip(3) if torch.rand((), generator=generator) < _HALF else x
            with torch.no_grad():
                # the labels and what the network thought teach it with equal weight
                wanted = (dense(mirrored).softmax(1) + F.one_hot(labels[rows], 10)) / 2
            loss = F.cross_entropy(model(mirrored), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return controller.strip()


def compressed(dense: nn.Module, level: float, bits: int) -> nn.Module:
    """Return `dense` pruned and clustered as it is."""
    model = copy.deepcopy(dense)
    Compose([Prune(), Cluster(bits=bits)]).compress(model, level)
    return model


def row(name: str, level: float, model: nn.Module, right: float) -> str:
    """Return one line of the table."""
    left = sum(int(one.count_nonzero()) for one in model.parameters())
    whole = sum(one.numel() for one in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.nncfx"
        size = nncfx.storage.save(path, model).size_bytes
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
    parser.add_argument("--train", type=int, default=0, help="training images")
    parser.add_argument("--networks", nargs="+", choices=sorted(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--levels", nargs="+", type=float, default=[0.3, 0.5, 0.7, 0.9])
    options = parser.parse_args()
    torch.manual_seed(0)
    print("| network | level | accuracy | footprint | | file | |", flush=True)
    print("|---|---|---|---:|---:|---:|---:|", flush=True)
    for name in options.networks:
        network = NETWORKS[name]
        dense = network.load(options.data)
        images, labels = (part[: options.images] for part in network.test(options.data))
        print(row(name, 0.0, dense, accuracy(dense, images, labels)), flush=True)
        for level in track(options.levels, description=name, transient=True):
            if options.train:
                seen = network.train(options.data, options.train)
                model = trained(dense, level, options.bits, *seen)
            else:
                model = compressed(dense, level, options.bits)
            print(row(name, level, model, accuracy(model, images, labels)), flush=True)


if __name__ == "__main__":
    main()
