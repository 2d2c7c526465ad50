"""Whole branches of residual networks go."""

import copy
from collections.abc import Callable

import pytest
import torch
from pytorchcv.models.mobilenetv2 import mobilenetv2_wd4
from pytorchcv.models.resnet import resnet18
from torch import nn

from nncfx.errors import ArgumentError, CompressionError
from nncfx.graph.channels import Channels
from nncfx.schemes import branch_sets, group_masks, group_scores, keep_branches
from nncfx.thinning import prunable_channels, thin

_IMAGE = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Linear(4, 6)
        self.up = nn.ModuleList(nn.Linear(6, 8) for _ in range(3))
        self.down = nn.ModuleList(nn.Linear(8, 6) for _ in range(3))
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for up, down in zip(self.up, self.down, strict=True):
            x = x + down(torch.relu(up(x)))
        out: torch.Tensor = self.head(x)
        return out


def masked(model: nn.Module, channels: Channels, keep: list[torch.Tensor]) -> nn.Module:
    changed = copy.deepcopy(model)
    weights = dict(changed.named_parameters())
    with torch.no_grad():
        for name, mask in group_masks(channels, keep, weights).items():
            weights[name].masked_fill_(~mask, 0)
    return changed


def test_the_inside_of_each_block_is_a_branch_and_the_stream_is_none() -> None:
    channels = prunable_channels(Blocks(), torch.zeros(1, 4))
    assert [one.name for one in branch_sets(channels)] == ["up.0", "up.1", "up.2"]


def test_the_branch_of_least_mean_score_goes_whole() -> None:
    model = Blocks()
    model.up[1].weight.data.div_(10)
    channels = prunable_channels(model, torch.zeros(1, 4))
    scores = group_scores(channels, dict(model.named_parameters()), "l1norm", normalize=False)
    keep = keep_branches(channels, scores, 0.4)
    gone = [o.name for o, k in zip(channels.prunable, keep, strict=True) if not k.any()]
    assert gone == ["up.1"]
    assert sum(int((~k).sum()) for k in keep) == model.up[1].out_features


def test_a_removed_branch_adds_a_constant_and_thinning_is_exact() -> None:
    model = Blocks().double()
    data = torch.randn(5, 4, dtype=torch.float64)
    channels = prunable_channels(model, data)
    keep = keep_branches(channels, [torch.ones(one.size) for one in channels.prunable], 0.99)
    result = thin(masked(model, channels, keep), data)
    # of equal scores the later branches go
    assert [one.out_features for one in result.model.up] == [8, 1, 1]
    x = model.stem(data)
    x = x + model.down[0](torch.relu(model.up[0](x))) + model.down[1].bias + model.down[2].bias
    torch.testing.assert_close(result.model(data), model.head(x))


@pytest.mark.parametrize("make", [resnet18, mobilenetv2_wd4])
def test_real_networks_lose_branches_and_still_depend_on_the_image(
    make: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    channels = prunable_channels(model, _IMAGE)
    assert len(branch_sets(channels)) >= 4
    keep = keep_branches(channels, [torch.ones(one.size) for one in channels.prunable], 0.99)
    result = thin(masked(model, channels, keep), _IMAGE, channels=channels)
    assert result.parameters[1] < 0.96 * result.parameters[0]
    with torch.no_grad():
        assert not torch.allclose(result.model(_IMAGE), result.model(-_IMAGE))


def test_level_zero_keeps_every_branch() -> None:
    channels = prunable_channels(Blocks(), torch.zeros(1, 4))
    scores = [torch.rand(one.size) for one in channels.prunable]
    assert all(mask.all() for mask in keep_branches(channels, scores, 0.0))


def test_a_chain_has_no_branch_that_may_go() -> None:
    chain = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    channels = prunable_channels(chain, torch.zeros(1, 2))
    with pytest.raises(CompressionError, match="No branch of this model can be removed"):
        keep_branches(channels, [torch.ones(3)], 0.5)


def test_scores_of_other_sets_are_refused() -> None:
    channels = prunable_channels(Blocks(), torch.zeros(1, 4))
    with pytest.raises(ArgumentError, match="one score per group"):
        keep_branches(channels, [torch.ones(2)], 0.5)
