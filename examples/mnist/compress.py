"""Deep Compression's table on MNIST: prune, cluster, thin, and write the file that is the claim.

    python examples/mnist/compress.py lenet300 --data ../shared/data --output lenet300.nncfx

Prunes while training goes on, then lets the weights that stay share a few values and trains
those, and removes the channels that nothing reads any more.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import digits
import torch
from networks import NETWORKS, pretrained
from torch import nn
from torch.nn import functional as F

import nncfx


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How strongly, and how long: `pruning` epochs to the level, `settling` there, `sharing`."""

    level: float
    bits: int
    pruning: int = 15
    settling: int = 10
    sharing: int = 5
    lr: float = 1e-3


RECIPES = {
    "lenet300": Recipe(level=0.95, bits=3),
    "lenet5": Recipe(level=0.982, bits=4, pruning=5, settling=3, sharing=3),
}


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=sorted(NETWORKS))
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--output", type=Path, required=True, help="the .nncfx file to write")
    parser.add_argument("--level", type=float, help="fraction of weights to prune")
    parser.add_argument("--bits", type=int, help="bits of a code")
    return parser.parse_args()


def compress(model: nn.Module, recipe: Recipe, train: digits.Batch) -> nn.Module:
    """Return `model` pruned and clustered, trained on `train` along the way."""
    images, labels = train
    # the network that was knows which digits look alike; that and the labels teach the small one
    targets = (F.one_hot(labels, 10) + digits.probabilities(model, images)) / 2
    start = recipe.pruning + recipe.settling
    pruning = {
        "algorithm": "magnitude_sparsity",
        "params": {
            "schedule": "cubic",
            "sparsity_target": recipe.level,
            "sparsity_target_epoch": recipe.pruning,
            "sparsity_freeze_epoch": start,
            "update_per_optimizer_step": True,
        },
    }
    clustering = {
        "algorithm": "weight_clustering",
        "bits": recipe.bits,
        "params": {"start_epoch": start},
    }
    config = {"compression": [pruning, clustering]}
    controller, model = nncfx.create_compressed_model(model, config, images[:2])
    epochs = start + recipe.sharing
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(epochs):
        controller.scheduler.epoch_step()
        model.train()
        for x, y in digits.batches((images, targets), 128, generator):
            controller.scheduler.step()
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch + 1} of {epochs}: level {controller.level:.4f}, loss {loss:.4f}")
    return controller.strip()


def main() -> None:
    """Compress, write the file, and judge what is read back from it."""
    options = arguments()
    torch.manual_seed(0)
    recipe = RECIPES[options.network]
    chosen = {"level": options.level, "bits": options.bits}
    recipe = replace(recipe, **{key: value for key, value in chosen.items() if value is not None})
    model = pretrained(options.network, options.data)
    test = digits.load(options.data, "t10k")
    dense = digits.accuracy(model, test)
    whole = sum(one.numel() for one in model.parameters())
    train = digits.load(options.data, "train")
    # half the precision for the shared values and the biases costs nothing that can be measured
    small = compress(model, recipe, train).half().float()
    small = nncfx.thin(small, train[0][:2]).model
    saved = nncfx.storage.save(options.output, small)
    again = nncfx.storage.load(options.output, NETWORKS[options.network]())
    left = sum(int(one.count_nonzero()) for one in again.parameters())
    print(f"accuracy {dense:.2f} % to {digits.accuracy(again, test):.2f} % (test, 10,000 images)")
    print(f"{left:,} of {whole:,} parameters are not zero: a footprint of {4 * left:,} bytes")
    print(f"{saved.size_bytes:,} bytes on disk: {4 * whole / saved.size_bytes:.0f}x smaller")


if __name__ == "__main__":
    main()
