"""MNIST in memory, and passes over it."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

Batch = tuple[torch.Tensor, torch.Tensor]


def load(folder: Path, part: str) -> Batch:
    """Return the normalised images, n x 1 x 28 x 28, and labels of `part`: "train" or "t10k"."""
    with gzip.open(folder / "data" / "mnist" / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(folder / "data" / "mnist" / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    pixels = torch.from_numpy(images.astype(np.float32) / 255)
    return (pixels - 0.1307) / 0.3081, torch.from_numpy(labels)


def batches(data: Batch, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield `data` once, in random order."""
    images, labels = data
    for rows in torch.randperm(len(labels), generator=generator).split(size):
        yield images[rows], labels[rows]


def moved(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return `images` (n x 1 x 28 x 28), each turned, stretched and moved a little at random."""
    spread = torch.tensor([[0.1, 0.1, 0.08], [0.1, 0.1, 0.08]])
    change = spread * (2 * torch.rand(len(images), 2, 3, generator=generator) - 1)
    grid = F.affine_grid(torch.eye(2, 3) + change, list(images.shape), align_corners=False)
    ground = images.min()  # grid_sample puts 0 beyond the edge
    return F.grid_sample(images - ground, grid, align_corners=False) + ground


@torch.no_grad()
def accuracy(model: nn.Module, data: Batch) -> float:
    """Return the percentage of `data` that `model` gets right."""
    images, labels = data
    model.eval()
    right = sum(
        int((model(x).argmax(1) == y).sum())
        for x, y in zip(images.split(1000), labels.split(1000), strict=True)
    )
    return 100 * right / len(labels)
