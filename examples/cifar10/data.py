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
    order depends on the number of the pass only. With `most` a pass ends after so
    many images, and the next one sees others. With a `teacher` the labels are its probabilities
    (n x 10): a network that is to find back to what it was learns faster from those.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        size: int,
        *,
        augment: bool = False,
        most: int | None = None,
        teacher: torch.nn.Module | None = None,
    ) -> None:
        """Hold uint8 `images` and int64 `labels`; `size` images make a batch."""
        self.images, self.labels, self.size = images, labels, size
        self.augment, self.teacher, self.passes = augment, teacher, 0
        self.count = len(images) if most is None else min(most, len(images))

    def __len__(self) -> int:
        """Return the number of batches of a pass; the last may be smaller."""
        return math.ceil(self.count / self.size)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the batches of one pass."""
        generator = torch.Generator().manual_seed(self.passes)
        self.passes += 1
        order = torch.arange(len(self.images))
        if self.augment:
            order = order[torch.randperm(len(order), generator=generator)]
        for rows in order[: self.count].split(self.size):
            images = self._augmented((self.images[rows].float() - MEAN) / STD, generator)
            yield images, self._labels(rows, images)

    def _labels(self, rows: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        if self.teacher is None:
            return self.labels[rows]
        with torch.no_grad():
            return self.teacher(images).softmax(1)

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


def load(folder: Path, teacher: torch.nn.Module, *, quick: bool = False) -> Cifar10:
    """Return CIFAR-10 from `folder`, with `teacher` for the training labels.

    The pretrained network has seen all 50,000 training images, so none of them can tell what
    pruning costs: the search is given images of the official test set, the report 5,000 others.
    """
    images, labels = _test(folder)
    train, searched, reported = (2000, 500, 1000) if quick else (15_000, 2500, 5000)
    return Cifar10(
        train=Batches(*_train(folder), 64, augment=True, most=train, teacher=teacher),
        validation=Batches(images[:searched], labels[:searched], 500),
        test=Batches(images[-reported:], labels[-reported:], 500),
    )


def parts(
    folder: Path, images: int, tested: tuple[int, int], size: int
) -> tuple[Batches, Batches, Batches]:
    """Return augmented training batches, `images` a pass, and two runs of test images."""
    test, labels = _test(folder)
    first, second = tested
    return (
        Batches(*_train(folder), size, augment=True, most=images),
        Batches(test[:first], labels[:first], 500),
        Batches(test[first : first + second], labels[first : first + second], 500),
    )


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
