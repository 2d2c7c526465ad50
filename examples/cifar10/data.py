"""CIFAR-10 in memory: decoded once, normalised and augmented batch by batch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1) * 255
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1) * 255


class Batches:
    """An iterable of (images, labels); every pass over it is a new order if `augment`.

    Images are n x 3 x 32 x 32 float32, normalised as the pretrained network expects them.
    With `augment` they are shuffled, shifted by up to 4 pixels and mirrored at random; the
    order depends on `seed` and the number of the pass only.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        size: int,
        *,
        augment: bool = False,
        seed: int = 0,
    ) -> None:
        """Hold uint8 `images` and int64 `labels`; `size` images make a batch."""
        self.images, self.labels, self.size = images, labels, size
        self.augment, self.seed, self.passes = augment, seed, 0

    def __len__(self) -> int:
        """Return the number of batches of a pass; the last may be smaller."""
        return math.ceil(len(self.images) / self.size)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches of one pass."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.passes)
        self.passes += 1
        count = len(self.images)
        order = torch.randperm(count, generator=generator) if self.augment else torch.arange(count)
        for rows in order.split(self.size):
            images = (self.images[rows].float() - MEAN) / STD
            yield self._augmented(images, generator), self.labels[rows]

    def _augmented(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if not self.augment:
            return images
        left, up = torch.randint(0, 9, (2,), generator=generator).tolist()
        images = torch.nn.functional.pad(images, (4, 4, 4, 4))[..., up : up + 32, left : left + 32]
        mirrored = torch.rand(len(images), generator=generator) < 0.5  # noqa: PLR2004 (a half)
        return torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)


@dataclass(frozen=True)
class Cifar10:
    """The three parts of the data: to train on, to search with, and to report on."""

    train: Batches
    validation: Batches
    test: Batches


def load(folder: Path, *, quick: bool = False, seed: int = 0) -> Cifar10:
    """Return CIFAR-10 from `folder`; `quick` takes a part of each set.

    The pretrained network has seen all 50,000 training images, so none of them can tell what
    pruning costs: the search is given one half of the official test images, the report the other.
    """
    images, labels = _test(folder)
    train_images, train_labels = _train(folder)
    half = len(images) // 2
    train, part = (3000, 1000) if quick else (len(train_images), half)
    return Cifar10(
        train=Batches(train_images[:train], train_labels[:train], 128, augment=True, seed=seed),
        validation=Batches(images[:part], labels[:part], 500),
        test=Batches(images[half : half + part], labels[half : half + part], 500),
    )


def whole_test(folder: Path) -> Batches:
    """Return all 10,000 official test images, on which published accuracies are measured."""
    return Batches(*_test(folder), 500)


def _test(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(folder / "data" / "cifar10_test.npz") as file:
        return torch.from_numpy(file["x"]), torch.from_numpy(file["y"].astype(np.int64))


def _train(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Undo the coding of the file: differences along rows and columns, red and blue to green."""
    with np.load(folder / "data" / "cifar10_train.npz") as file:
        rows = np.cumsum(file["d"], axis=2, dtype=np.uint8)
        images = np.cumsum(rows, axis=3, dtype=np.uint8)
        labels = file["y"].astype(np.int64)
    images[:, 0] += images[:, 1]
    images[:, 2] += images[:, 1]
    return torch.from_numpy(images), torch.from_numpy(labels)
