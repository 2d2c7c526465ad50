"""Hooks, models by name, shorter proofs, and rarer garbage collections."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from small_models import CASES, Case

_ROOT = str(Path(__file__).parents[1])
# scripts that tests start import what is tested, and not another checkout that is installed
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))


def pytest_collection_finish() -> None:
    """Take a million objects of modules and tests from all later garbage collections."""
    gc.freeze()
    gc.set_threshold(5_000)


class Halve(nn.Module):
    """A hook with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class AddOne(nn.Module):
    """A hook that does not commute with `Halve`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def halve() -> nn.Module:
    return Halve()


@pytest.fixture
def add_one() -> nn.Module:
    return AddOne()


@pytest.fixture(scope="session", autouse=True)
def short_proofs() -> Iterator[None]:
    """Time winners of searches for a tenth of a second, as no test reads their intervals."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nncfx.compressor.build_evidence._PROOF_SECONDS", 0.1)
        yield
