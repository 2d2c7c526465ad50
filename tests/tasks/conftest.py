"""A small task on disk: a model that has learned something, in two files."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nncfx.tasks import read_task, run_task

CODE = """
import torch
from torch import nn
from torch.nn import functional as F


def model(width=8):
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(1, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 2),
    )
    optimizer = torch.optim.Adam(made.parameters(), lr=0.02)
    for images, labels in data()["train"] * 8:
        optimizer.zero_grad()
        F.cross_entropy(made(images), labels).backward()
        optimizer.step()
    return made


def data():
    images = torch.randn(512, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = (images.abs().mean((1, 2, 3)) > 0.8).long()
    batches = list(zip(images.split(32), labels.split(32), strict=True))
    return {"train": batches[:8], "validation": batches[8:]}


def three_loaders():
    found = data()
    return found["train"], found["validation"], found["validation"]


def only_training():
    return {"train": data()["train"]}


def two_batches():
    return data()["train"][:2]


def named_batches():
    found = [{"x": x, "y": y} for x, y in data()["train"]]
    return {"train": found, "validation": found}


def once():
    return {"train": iter(data()["train"]), "validation": data()["validation"]}


def of_one(outputs):
    return outputs.sum()


def not_a_number(model, loader):
    return float("nan")


def no_model():
    return 7


def broken():
    raise KeyError("weights of the moon")
"""


@pytest.fixture
def search() -> dict[str, Any]:
    """Return the section of a short search."""
    return short_search()


def short_search() -> dict[str, Any]:
    """Return a section of its own for each caller, who may change it."""
    return {
        "objective": "macs",
        "schemes": [{"name": "FilterPrune"}],
        "optimizer": {"algorithm": "DC"},
        "eps": 0.2,
        "max_evaluations": 2,
        "runtime": "torch",
    }


def written(folder: Path, name: str = "task.json", **sections: object) -> Path:
    """Write a config of these sections beside its code; return its path."""
    (folder / "net.py").write_text(CODE)
    document = {"model": "net.py:model", "data": "net.py:data", **sections}
    document = {key: value for key, value in document.items() if value is not None}
    path = folder / name
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a config of these sections beside its code, and returns its path."""
    return functools.partial(written, tmp_path)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a task, and of the search that has been run from it, in `out`."""
    folder = tmp_path_factory.mktemp("searched")
    run_task(read_task(written(folder, search=short_search())), folder / "out")
    return folder


@pytest.fixture
def out(searched: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder of a search that has ended."""
    return shutil.copytree(searched / "out", tmp_path / "out")
