"""Models with random statistics, and channels that nobody reads."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import nn

from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Role

Zero = Callable[..., dict[str, tuple[int, ...]]]


def randomize(model: nn.Module) -> nn.Module:
    """Give parameters and statistics values at which nothing is zero or one by accident."""
    generator = torch.Generator().manual_seed(7)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and tensor.dim() == 1:
            tensor.uniform_(0.5, 1.5, generator=generator)
            if "mean" in name or name.endswith("bias"):
                tensor.sub_(1)
    return model


@pytest.fixture
def randomized() -> Callable[[nn.Module], nn.Module]:
    return randomize


@pytest.fixture
def unread() -> Zero:
    """Return a function that zeroes what reads some groups, and returns these by set name."""

    def zero(
        model: nn.Module,
        example_inputs: torch.Tensor,
        groups: Mapping[str, Sequence[int]] | None = None,
    ) -> dict[str, tuple[int, ...]]:
        generator = torch.Generator().manual_seed(3)
        parameters = dict(model.named_parameters(remove_duplicate=False))
        removed = {}
        for group_set in analyze_channels(model, example_inputs).prunable:
            half = torch.randperm(group_set.size, generator=generator)[: group_set.size // 2]
            chosen = sorted(half.tolist()) if groups is None else groups.get(group_set.name, ())
            if not chosen or not group_set.by_role(Role.CONSUMER):
                continue
            for member in group_set.by_role(Role.CONSUMER):
                index = torch.from_numpy(member.entries(chosen))
                parameters[member.parameter].data.index_fill_(member.axis, index, 0.0)
            removed[group_set.name] = tuple(group_set.origin.entries(chosen).tolist())
        return removed

    return zero
