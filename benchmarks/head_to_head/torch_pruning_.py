"""Torch-Pruning 1.6.1: channels by the L2 norm of their groups, removed before training."""

import copy
from typing import Any

import task
import torch_pruning
from judges import living_macs
from torch import nn

from nncfx.training import AugmentedImages


def compress(dense: nn.Module, told: dict[str, Any], images: AugmentedImages) -> nn.Module:
    """Return the network after training."""
    macs = told["macs"] * living_macs(dense, task.EXAMPLE)
    model = _in_parts(dense, told["parts"], macs) if told["parts"] > 1 else _at_once(dense, macs)
    task.train(model, [{"params": list(model.parameters())}], images)
    return model


def _pruner(model: nn.Module, ratio: float, parts: int) -> torch_pruning.pruner.BasePruner:
    return torch_pruning.pruner.BasePruner(
        model,
        task.EXAMPLE,
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        global_pruning=True,
        pruning_ratio=ratio,
        iterative_steps=parts,
        ignored_layers=[one for one in model.modules() if isinstance(one, nn.Linear)],
    )


def _in_parts(model: nn.Module, parts: int, macs: float) -> nn.Module:
    """Prune in small parts until few enough are left: as its benchmarks reach a speed-up."""
    pruner = _pruner(model, 1.0, parts)
    while living_macs(model, task.EXAMPLE) > macs:
        pruner.step()
    return model


def _at_once(dense: nn.Module, macs: float) -> nn.Module:
    """Return `dense` pruned in one step, by the smallest ratio that leaves few enough."""
    low, high, found = 0.0, 1.0, dense
    while high - low > 1e-3:  # noqa: PLR2004 (less than a channel)
        middle = (low + high) / 2
        model = copy.deepcopy(dense)
        _pruner(model, middle, 1).step()
        if living_macs(model, task.EXAMPLE) > macs:
            low = middle
        else:
            high, found = middle, model
    return found


if __name__ == "__main__":
    task.main("torch_pruning", compress)
