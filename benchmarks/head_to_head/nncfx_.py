"""nncfx: by a config of nncf, or by Torch-Pruning's importance of the groups it finds."""

import copy
from collections.abc import Mapping
from typing import Any

import task
import torch
from judges import living_macs
from torch import Tensor, nn

import nncfx
from nncfx.graph.channels import GroupSet
from nncfx.schemes import keep_groups, zero_groups
from nncfx.thinning import prunable_channels, thin
from nncfx.training import AugmentedImages


def compress(dense: nn.Module, told: dict[str, Any], images: AugmentedImages) -> nn.Module:
    """Return the network after training."""
    if "algorithm" not in told:
        model = _within(dense, told["macs"] * living_macs(dense, task.EXAMPLE))
        task.train(model, [{"params": list(model.parameters())}], images)
        return model
    controller, model = nncfx.create_compressed_model(dense, {"compression": told}, task.EXAMPLE)
    task.train(model, controller.parameter_groups(task.RECIPE.lr), images, controller)
    return controller.strip()


def _within(dense: nn.Module, macs: float) -> nn.Module:
    """Return `dense` without its least channels, of at most so many multiply-accumulates."""
    channels = prunable_channels(dense, task.EXAMPLE)
    weights = dict(dense.named_parameters())
    scores = [_importance(one, weights) for one in channels.prunable]
    low, high, model = 0.0, 1.0, dense
    while high - low > 1 / sum(map(len, scores)):
        middle = (low + high) / 2
        masked = copy.deepcopy(dense)
        zero_groups(channels, keep_groups(scores, middle), dict(masked.named_parameters()))
        thinned = thin(masked, task.EXAMPLE, channels=channels).model
        if living_macs(thinned, task.EXAMPLE) > macs:
            low = middle
        else:
            high, model = middle, thinned
    return model


def _importance(group_set: GroupSet, weights: Mapping[str, Tensor]) -> Tensor:
    """Return what Torch-Pruning's `GroupMagnitudeImportance(p=2)` gives: g scores of mean 1.

    The mean over all weights that lose a channel together, norms' too, of its sum of squares.
    """
    squares = []
    for member in group_set.members:
        if member.parameter.endswith(".weight"):
            rows = weights[member.parameter].detach().movedim(member.axis, 0)
            slices = rows[torch.from_numpy(member.indices.copy())]
            squares.append(slices.flatten(1).square().sum(1))
    mean = torch.stack(squares).mean(0)
    return mean / mean.mean()


if __name__ == "__main__":
    task.main("nncfx", compress)
