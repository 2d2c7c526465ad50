"""A small trained classifier, and data on which recovery shows."""

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from nncfx.lc import RecoveryData


@pytest.fixture(scope="session")
def digits() -> RecoveryData:
    """Scans of digits: 1,400 to train, 397 held out; the metric is accuracy."""
    bunch = load_digits()
    images = torch.tensor(bunch.data / 16, dtype=torch.float32)
    labels = torch.tensor(bunch.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, held_out = order[:1400], order[1400:]
    batches = [(images[part], labels[part]) for part in train.split(64)]

    def accuracy(model: nn.Module) -> float:
        return float((model(images[held_out]).argmax(1) == labels[held_out]).float().mean())

    return RecoveryData(train=batches, validate=accuracy, criterion=F.cross_entropy)


@pytest.fixture(scope="session")
def trained(digits: RecoveryData) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(20):
        for inputs, targets in digits.train:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return model.eval()


@pytest.fixture
def dense(trained: nn.Module) -> nn.Module:
    return copy.deepcopy(trained)


@pytest.fixture
def toy() -> RecoveryData:
    """Two fixed minibatches of a tiny regression; the metric is the negative loss."""
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(8, 3, generator=generator), torch.randn(8, 2, generator=generator))
        for _ in range(2)
    ]

    def negative_loss(model: nn.Module) -> float:
        return -sum(float(F.mse_loss(model(x), y)) for x, y in batches)

    return RecoveryData(train=batches, validate=negative_loss, criterion=F.mse_loss)
