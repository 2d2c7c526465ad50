"""Deep Compression's table on MNIST: from a pretrained network to the file that is the claim.

    python examples/mnist/compress.py lenet300 --data ../shared/data --output lenet300.nncfx

Trains the network on turned and moved digits, then holds it to so many bits a weight while
training goes on, and removes the channels that nothing reads any more.
"""

import argparse
import copy
from dataclasses import dataclass, replace
from pathlib import Path

import digits
import torch
from networks import NETWORKS, WEIGHTS, pretrained
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.controllers import Controller

HELD_OUT = 5000
"""Training images, the last ones, that are not trained on: to choose settings by them."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How small, and how long.

    Attributes:
        bits: Of a weight, on average, from epoch `falling` on.
        tuning: Epochs of the whole network on turned and moved digits, before.
        falling: Epochs in which the bits fall.
        settling: Epochs after that.
        rate: What a bit per weight adds to the loss.
        lr: Adam's.
    """

    bits: float
    tuning: int = 10
    falling: int = 15
    settling: int = 25
    rate: float = 0.01
    lr: float = 1e-3


RECIPES = {
    "lenet300": Recipe(bits=0.3),
    "lenet5": Recipe(bits=0.1, tuning=0, falling=5, settling=4),
}


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=sorted(NETWORKS))
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--output", type=Path, required=True, help="the .nncfx file to write")
    parser.add_argument("--bits", type=float, help="bits of a weight")
    parser.add_argument("--rate", type=float, help="what a bit per weight adds to the loss")
    parser.add_argument("--settling", type=int, help="epochs at these bits")
    options = parser.parse_args()
    for name in ("data/mnist/train-images-idx3-ubyte.gz", f"weights/{WEIGHTS[options.network]}"):
        if not (options.data / name).exists():
            parser.error(
                f"{options.data} has no {name}; examples/data.md says where it comes from"
            )
    return options


def train(
    model: nn.Module,
    teacher: nn.Module,
    data: digits.Batch,
    epochs: int,
    lr: float,
    controller: Controller | None = None,
) -> None:
    """Train `model` on turned and moved digits, by labels and what `teacher` says."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    generator = torch.Generator().manual_seed(0)
    teacher.eval()
    for epoch in range(epochs):
        if controller:
            controller.scheduler.epoch_step()
        model.train()
        for images, labels in digits.batches(data, 128, generator):
            x = digits.moved(images, generator)
            with torch.no_grad():
                y = (F.one_hot(labels, 10) + teacher(x).softmax(1)) / 2
            loss = F.cross_entropy(model(x), y)
            if controller:
                controller.scheduler.step()
                loss = loss + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {loss:.4f}", flush=True)


def compress(model: nn.Module, recipe: Recipe, data: digits.Batch) -> nn.Module:
    """Return `model` with weights of `recipe.bits`, trained on `data` along the way."""
    train(model, copy.deepcopy(model), data, recipe.tuning, recipe.lr)
    teacher = copy.deepcopy(model)
    constraint = {
        "algorithm": "entropy_constraint",
        "bits": recipe.bits,
        "rate": recipe.rate,
        "params": {"bits_init": 3.0, "target_epoch": recipe.falling},
    }
    epochs = recipe.falling + recipe.settling
    controller, model = nncfx.create_compressed_model(
        model, {"compression": [constraint]}, data[0][:2]
    )
    train(model, teacher, data, epochs, recipe.lr, controller)
    return controller.strip()


def main() -> None:
    """Compress, write the file, and judge what is read back from it."""
    options = arguments()
    torch.manual_seed(0)
    recipe = RECIPES[options.network]
    chosen = {"bits": options.bits, "rate": options.rate, "settling": options.settling}
    recipe = replace(recipe, **{key: value for key, value in chosen.items() if value is not None})
    model = pretrained(options.network, options.data)
    images, labels = digits.load(options.data, "train")
    chosen_by = images[-HELD_OUT:], labels[-HELD_OUT:]
    test = digits.load(options.data, "t10k")
    dense = digits.accuracy(model, test)
    whole = sum(one.numel() for one in model.parameters())
    small = compress(model, recipe, (images[:-HELD_OUT], labels[:-HELD_OUT]))
    small = nncfx.thin(small, images[:2]).model
    with torch.no_grad():
        for name, one in small.named_parameters():
            if name.endswith("bias"):  # 32nds cost nothing that can be measured
                one.copy_((32 * one).round() / 32)
    saved = nncfx.storage.save(options.output, small)
    again = nncfx.storage.load(options.output, NETWORKS[options.network]())
    left = sum(int(one.count_nonzero()) for one in again.parameters())
    print(f"held-out training images: {digits.accuracy(again, chosen_by):.2f} %")
    print(f"accuracy {dense:.2f} % to {digits.accuracy(again, test):.2f} % (test, 10,000 images)")
    print(f"{left:,} of {whole:,} parameters are not zero: a footprint of {4 * left:,} bytes")
    print(f"{saved.size_bytes:,} bytes on disk: {4 * whole / saved.size_bytes:.0f}x smaller")


if __name__ == "__main__":
    main()
