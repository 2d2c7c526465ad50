"""A small task that trains in a second: bars in noise, with a residual network for it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.compressor import Compressor
from nncfx.lc import DC
from nncfx.objectives import Minimize, footprint
from nncfx.schemes import Prune
from nncfx.search import SearchSettings

Batches = list[tuple[torch.Tensor, torch.Tensor]]


class Bars(nn.Module):
    """A stem, one residual block and a head, for images of 1 x 8 x 8 in four classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.inner = nn.Conv2d(16, 16, 3, padding=1)
        self.outer = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(x + self.outer(F.relu(self.inner(x))))
        return self.head(x.mean((2, 3)))


def bars(count: int, seed: int) -> Batches:
    """Images of a horizontal, vertical, or one of two diagonal bars, in batches of 32."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.randn(count, 1, 8, 8, generator=generator)
    labels = torch.randint(4, (count,), generator=generator)
    places = torch.randint(8, (count,), generator=generator)
    diagonal = torch.eye(8)
    for image, label, place in zip(images, labels, places, strict=True):
        if label == 0:
            image[0, place] += 1
        elif label == 1:
            image[0, :, place] += 1
        elif label == 2:
            image[0] += diagonal.roll(int(place), 0)
        else:
            image[0] += diagonal.flip(0).roll(int(place), 0)
    return list(zip(images.split(32), labels.split(32), strict=True))


@pytest.fixture(scope="session")
def task() -> dict[str, Batches]:
    return {
        "trainloader": bars(256, seed=0),
        "valloader": bars(128, seed=1),
        "testloader": bars(128, seed=2),
    }


@pytest.fixture(scope="session")
def trained(task: dict[str, Batches]) -> Bars:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Bars()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(8):
            for x, y in task["trainloader"]:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
    return model.eval()


@pytest.fixture(scope="session")
def quick(trained: Bars, task: dict[str, Batches]) -> Callable[..., Compressor]:
    """Return what makes a compressor of few trials, with some settings changed."""
    settings = {
        "model": trained,
        "objective": Minimize(footprint),
        "scheme": Prune(),
        "optimizer": DC(),
        "criterion": F.cross_entropy,
        "eps": 0.05,
        "runtime": "torch",
        "settings": SearchSettings(tolerance=0.1, max_evaluations=3),
    }
    return lambda **changes: Compressor(**settings | task | changes)
