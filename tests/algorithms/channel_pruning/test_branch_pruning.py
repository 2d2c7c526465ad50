"""Branch pruning: whole residual branches go, the rest stays whole."""

import pytest
import torch
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import nn

from nncfx.algorithms.channel_pruning.config import BranchPruningConfig
from nncfx.algorithms.channel_pruning.kinds import BranchPruningBuilder
from nncfx.errors import CompressionError, ConfigError
from nncfx.network import wrap
from nncfx.thinning import thin
from nncfx.training.create import create_compressed_model

IMAGE = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_half_of_the_branches_of_a_resnet_go_whole_and_thin_exactly() -> None:
    """Of nine branches four go, of which thinning leaves one channel; no other loses any."""
    torch.manual_seed(0)
    model = resnet20_cifar10().eval()
    params = {"pruning_target": 0.5}
    item = {"algorithm": "branch_pruning", "pruning_init": 0.5, "params": params}
    controller, wrapped = create_compressed_model(model, {"compression": item}, IMAGE)
    found = controller.statistics().channels
    assert len(found) == 9
    assert sorted(one.before - one.after for one in found if one.after < one.before) == sorted(
        one.before for one in found if not one.after
    )
    assert sum(not one.after for one in found) == 4
    result = thin(wrapped)
    assert result.max_error < 1e-5
    widths = [
        unit.body.conv1.conv.out_channels
        for stage in list(result.model.features)[1:4]
        for unit in stage
    ]
    assert widths.count(1) == 4
    assert set(widths) == {1, 16, 32, 64} & set(widths)


def test_a_model_without_branches_is_told() -> None:
    """A chain has none; the reason of each set is given."""
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    with pytest.raises(CompressionError, match="no residual branch goes with it"):
        BranchPruningBuilder(BranchPruningConfig()).plan(wrap(model, IMAGE))


@pytest.mark.parametrize(
    ("key", "value"),
    [("align", 8), ("all_weights", True), ("constrained", False), ("pruning_side", "output")],
)
def test_keys_that_choose_single_channels_are_refused(key: str, value: object) -> None:
    """Nothing that a user writes is ignored."""
    item = {"algorithm": "branch_pruning", "params": {key: value}}
    with pytest.raises(ConfigError, match=rf"params\.{key}: unknown key"):
        BranchPruningConfig.from_dict(item)


def test_a_level_below_one_branch_of_a_few_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """At a half, no branch of one goes; log and statistics say that branches are counted down."""
    torch.manual_seed(0)
    item = {"algorithm": "branch_pruning", "pruning_init": 0.5, "params": {"pruning_target": 0.5}}
    controller, _ = create_compressed_model(_Block(), {"compression": item}, IMAGE)
    assert controller.statistics().level == 0
    told = "Not pruned, as whole branches go, and of n of them floor(level * n), those that"
    assert f"{told} matter least: first." in str(controller.statistics())
    assert caplog.messages[-1] == (
        "branch_pruning removes nothing at its 'pruning_init' 0.5: the level is a fraction of the "
        "1 branches that can be removed, rounded down to whole ones. Raise 'pruning_init'."
    )


def test_a_branch_saves_all_its_layers() -> None:
    """Its layers have 128, 576 and 128 MACs for a pixel; the first is read by the second alone.

    Beside four such branches are a stem of 432 for a pixel, and 64 in the end.
    """
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        *(_Bottleneck() for _ in range(4)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)),
    )
    params = {"pruning_flops_target": 0.2, "schedule": "baseline"}
    item = {"algorithm": "branch_pruning", "params": params}
    controller, wrapped = create_compressed_model(model, {"compression": item}, IMAGE)
    controller.scheduler.epoch_step()
    one = 1024 * 832 / (1024 * (432 + 4 * 832) + 64)
    found = controller.statistics()
    assert sum(not one.after for one in found.channels) == 1
    assert found.macs_level == pytest.approx(one) == controller.level
    # 136, 584 and 144 parameters in each branch, of which the last 16 biases stay
    assert found.parameter_level == pytest.approx((136 + 584 + 144 - 16) / (448 + 4 * 864 + 68))
    before = [each.a.out_channels for each in model[1:5]]
    after = [each.a.out_channels for each in thin(wrapped.eval()).model[1:5]]
    assert sorted(before) == [8] * 4
    assert sorted(after) == [1, 8, 8, 8]


class _Bottleneck(nn.Module):
    """A residual branch of three convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.c = nn.Conv2d(8, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.c(self.b(self.a(x).relu()).relu())


class _Block(nn.Module):
    """One residual branch of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first, self.second = (nn.Conv2d(i, 8, 3, 1, 1) for i in (3, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return x + self.second(self.first(x).relu())
