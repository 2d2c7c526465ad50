"""An example task to copy: scikit-learn's digits with fewer channels, then in integers.

Run it with: nncfx compress digits.py
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

search = {
    "objective": "macs",
    "schemes": [{"name": "FilterPrune", "align": 4}, {"name": "Quantize", "dtype": "float16"}],
    "optimizer": {"algorithm": "DCFineTuned", "epochs": 3, "lr": 0.02},
    "eps": 0.02,
    "max_evaluations": 4,
    "threads": 1,
}
export = {"file": "digits.onnx", "quantize": True}


def data() -> dict[str, Any]:
    """Return batches of 8 x 8 images and their digits; the test set chooses nothing."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
    labels = torch.tensor(digits.target)[order]
    batches = list(zip(torch.split(images, 64), torch.split(labels, 64), strict=True))
    return {"train": batches[:15], "validation": batches[15:22], "test": batches[22:-1]}


def model() -> nn.Module:
    """Return a small network, trained for a few seconds."""
    torch.manual_seed(0)
    made = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    optimizer = torch.optim.SGD(made.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    for images, labels in data()["train"] * 8:
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(made(images), labels))
        optimizer.step()
    return made
