"""Masks equal those of condensa 0.5.0b0 exactly, where that package is installed.

Install it beside the environment: `pip install --no-deps --target DIR condensa==0.5.0b0`, and run
with `PYTHONPATH=DIR`.
"""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.schemes import (
    BlockPrune,
    Compose,
    FilterPrune,
    NeuronPrune,
    Prune,
    Quantize,
    Scheme,
    StructurePrune,
)

condensa = pytest.importorskip("condensa", reason="condensa 0.5.0b0 is not on the path")
pytestmark = pytest.mark.filterwarnings("ignore")

DENSITIES = [0.1, 0.2, 0.35, 0.5, 0.62, 0.9]
LEVELS = dict(zip(DENSITIES, [0.9, 0.8, 0.65, 0.5, 0.38, 0.1], strict=True))


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.Conv2d(16, 24, 3),
        nn.Flatten(),
        nn.Linear(24, 40),
        nn.Linear(40, 12),
    )


def pairs(density: float) -> list[tuple[Any, Scheme]]:
    theirs = condensa.schemes
    found: list[tuple[Any, Scheme]] = [(theirs.Prune(density), Prune())]
    for name in ("l2norm", "max", "min", "mean", "sum"):
        criterion = getattr(condensa.functional, name)
        for align in (None, 4):
            found += [
                (theirs.FilterPrune(density, align, criterion), FilterPrune(name, align)),
                (theirs.NeuronPrune(density, align, criterion), NeuronPrune(name, align)),
                (theirs.StructurePrune(density, align, criterion), StructurePrune(name, align)),
            ]
        found.append((theirs.BlockPrune(density, (4, 2), criterion), BlockPrune(name, (4, 2))))
    halves = theirs.Quantize(condensa.float16)
    found.append((theirs.Compose([theirs.Prune(density), halves]), Compose([Prune(), Quantize()])))
    return found


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("seed", range(3))
def test_every_shared_scheme_gives_the_same_parameters(density: float, seed: int) -> None:
    model = network(seed)
    for theirs, ours in pairs(density):
        one, other = copy.deepcopy(model), copy.deepcopy(model)
        theirs.pi(one)
        ours.compress(other, LEVELS[density])
        for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
            assert a.dtype == b.dtype, (theirs, name)
            assert torch.equal(a, b), (theirs, name)
