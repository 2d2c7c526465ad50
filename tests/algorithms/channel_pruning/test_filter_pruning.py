"""Filter pruning: what it spares, what it masks, and that masked equals thinned."""

from typing import Any

import pytest
import torch
from pytorchcv.models.mobilenetv2 import mobilenetv2_w1
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import Tensor, nn

from nncfx.algorithms.channel_pruning import controller as pruning_controller
from nncfx.algorithms.channel_pruning.controller import ChannelPruningController
from nncfx.errors import CompressionError
from nncfx.graph.macs import total_macs
from nncfx.network import strip
from nncfx.schemes import CRITERIA
from nncfx.schemes.masks.criteria import geometric_median
from nncfx.thinning import thin
from nncfx.tracing import trace
from nncfx.training.create import create_compressed_model


class Chain(nn.Module):
    """Four convolutions, the third with a stride, norms between, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv3 = nn.Conv2d(8, 16, 3, stride=2)
        self.conv4 = nn.Conv2d(16, 16, 1)
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv2(self.conv1(x).relu())).sigmoid()
        return self.fc(self.conv4(self.conv3(x).relu()).mean((2, 3)))


INPUTS = torch.randn(1, 3, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def chain() -> Chain:
    torch.manual_seed(0)
    return Chain().double().eval()


def applied(
    model: nn.Module | None = None,
    inputs: Tensor = INPUTS,
    *,
    scopes: dict[str, Any] | None = None,
    **params: object,
) -> ChannelPruningController:
    every_width = {"align": 1}  # small layers with few aligned widths
    given = {key: one for key, one in (every_width | params).items() if one is not None}
    item = {"algorithm": "filter_pruning", "params": given} | (scopes or {})
    model = chain() if model is None else model
    return create_compressed_model(model, {"compression": item}, inputs)[0]


def prunable(controller: ChannelPruningController) -> list[str]:
    return [one.name for one in controller.channels.prunable]


def test_importances_are_the_published_ones() -> None:
    filters = torch.arange(120.0).view(2, 60)
    assert CRITERIA["l1norm"](filters).tolist() == [1770, 5370]
    assert CRITERIA["l2norm"](filters).tolist() == pytest.approx([264.97170, 706.12322], abs=1e-4)


def test_geometric_median_is_the_sum_of_distances_to_the_others() -> None:
    filters = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    far = 18**0.5  # from (3, 4) to (0, 1)
    assert geometric_median(filters).tolist() == pytest.approx([6, 5 + far, 1 + far])


@pytest.mark.parametrize(
    ("level", "width"), [(0.1, 60), (0.3, 48), (0.5, 32), (0.7, 20), (0.8, 16), (0.97, 4)]
)
def test_by_default_widths_are_those_that_cpus_compute_best(level: float, width: int) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 64, 1), nn.Conv2d(64, 2, 1)).double()
    params = {"pruning_target": level}
    item = {"algorithm": "filter_pruning", "pruning_init": level, "params": params}
    controller, _ = create_compressed_model(model, {"compression": item}, INPUTS)
    (found,) = controller.statistics().channels
    assert (found.name, found.after) == ("1", width)


def test_by_default_first_and_strided_convolutions_are_spared() -> None:
    controller = applied()
    assert prunable(controller) == ["conv2", "conv4"]
    spared = controller.statistics().spared
    assert "prune_first_conv is false" in spared["conv1"]
    assert "prune_downsample_convs is false" in spared["conv3"]


def test_first_convolutions_are_pruned_on_demand() -> None:
    assert prunable(applied(prune_first_conv=True)) == ["conv1", "conv2", "conv4"]


def test_strided_convolutions_are_pruned_on_demand() -> None:
    assert prunable(applied(prune_downsample_convs=True)) == ["conv2", "conv3", "conv4"]


def test_an_ignored_convolution_keeps_its_filters() -> None:
    controller = applied(scopes={"ignored_scopes": ["Chain/Conv2d[conv2]"]})
    assert prunable(controller) == ["conv4"]


def test_target_scopes_leave_all_else_alone() -> None:
    controller = applied(scopes={"target_scopes": ["Chain/Conv2d[conv2]"]})
    assert prunable(controller) == ["conv2"]


def test_nothing_to_prune_is_an_error_with_reasons() -> None:
    with pytest.raises(CompressionError, match=r"finds no channels.*is outside the scopes"):
        applied(scopes={"target_scopes": ["Chain/Linear[fc]"]})


def test_each_layer_loses_the_same_fraction_by_default() -> None:
    controller = applied()
    controller.level = 0.3
    kept = {one.name: one.after for one in controller.statistics().channels}
    assert kept == {"conv2": 8 - 2, "conv4": 16 - 4}  # floor(0.3 n) go


def test_all_weights_ranks_all_filters_together() -> None:
    model = chain()
    with torch.no_grad():
        model.conv4.weight[:8] *= 1e-3
    controller = applied(model, all_weights=True)
    controller.level = 0.33  # floor(0.33 * 24) = 7
    kept = {one.name: one.after for one in controller.statistics().channels}
    assert kept == {"conv2": 8, "conv4": 16 - 7}


def test_no_layer_is_emptied() -> None:
    controller = applied(all_weights=True)
    controller.level = 0.99
    assert all(one.after >= 1 for one in controller.statistics().channels)


def test_kept_counts_can_be_aligned() -> None:
    controller = applied(align=4)
    controller.level = 0.3
    assert [one.after for one in controller.statistics().channels] == [8, 12]


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize(("align", "after"), [(None, 28), (4, 28), (8, 32), (16, 32), (1, 26)])
def test_an_alignment_never_prunes_beyond_the_target(
    align: int | None, after: int, constrained: bool
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 32, 1), nn.Conv2d(32, 2, 1))
    params = {"align": align, "pruning_target": 0.2, "constrained": constrained}
    controller = applied(model, torch.randn(2, 3, 9, 9), **params)
    controller.level = 0.2  # 6.4 of 32 channels
    assert int((strip(controller.model)[2].weight != 0).any(3).any(2).any(0).sum()) == after
    assert controller.level == controller.statistics().level == 1 - after / 32
    assert controller.target_level == controller.statistics().target_level == 0.2


@pytest.mark.parametrize("all_weights", [False, True])
@pytest.mark.parametrize("level", [0.1, 0.3, 0.5, 0.7])
def test_a_real_network_comes_close_to_the_target_from_below(
    all_weights: bool, level: float
) -> None:
    params = {"prune_first_conv": True, "prune_downsample_convs": True, "align": None}
    image = torch.randn(1, 3, 32, 32)
    controller = applied(resnet20_cifar10().eval(), image, all_weights=all_weights, **params)
    before = sum(one.before for one in controller.statistics().channels)
    controller.level = level
    after = {one.name: (one.before, one.after) for one in controller.statistics().channels}
    reached = 1 - sum(left for _, left in after.values()) / before
    assert level - 0.1 < reached <= level
    assert controller.level == pytest.approx(reached, abs=1e-12)
    assert all(n == size or n % 4 == 0 for size, n in after.values())
    if not all_weights:
        assert all(size - n <= level * size for size, n in after.values())


def test_widths_are_rounded_down_on_demand() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 32, 1), nn.Conv2d(32, 2, 1))
    controller = applied(model, torch.randn(2, 3, 9, 9), align=16, align_down=True)
    controller.level = 0.2
    assert controller.level == 0.5
    assert controller.target_level == 0.2


@pytest.mark.parametrize(
    ("asked", "params"),
    [
        (0.2, {"align": None}),  # 28 of 32 stay: 0.125
        (0.125, {"align": None}),
        (0.2, {"align": 16, "align_down": True}),
        (0.2, {"align": 1}),
    ],
)
def test_what_an_alignment_makes_of_the_target_is_told_at_once(
    asked: float, params: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 32, 1), nn.Conv2d(32, 2, 1))
    controller = applied(model, torch.randn(2, 3, 9, 9), pruning_target=asked, **params)
    told = [one for one in caplog.messages if "reaches the level 0.125" in one]
    assert len(caplog.messages) == len(told) == (asked == 0.2 and params == {"align": None})
    assert controller.level == 0.0  # the level at which it begins


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_first_convolution_that_is_kept_although_it_may_go_is_told(
    first: bool, stride: int, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=stride), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 2, 1)
    )
    applied(model, torch.randn(2, 3, 9, 9), prune_first_conv=first)
    expected = (
        "'prune_first_conv' has no effect on 'Sequential/Conv2d[0]/conv2d_0', which keeps its "
        "channels: 'Sequential/Conv2d[0]/conv2d_0' has a stride, and prune_downsample_convs is "
        "false."
    )
    assert caplog.messages == [expected] * (first and stride > 1)


def test_a_target_that_an_alignment_keeps_from_pruning_anything_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    applied(align=16, pruning_target=0.4)
    (told,) = caplog.messages
    assert told.startswith("filter_pruning removes nothing at its target 0.4")
    assert "'params.pruning_target'" in told


def test_a_first_level_of_less_than_a_group_is_told(caplog: pytest.LogCaptureFixture) -> None:
    applied(scopes={"pruning_init": 0.01})
    (told,) = caplog.messages
    assert told.startswith("filter_pruning removes nothing at its 'pruning_init' 0.01: ")
    assert "the largest set, 'conv" in told


def test_masks_stand_on_both_sides_of_a_channel() -> None:
    controller = applied()
    assert set(controller.masks.hooks) == {
        *("conv2.weight", "conv2.bias", "norm.weight", "norm.bias", "conv3.weight"),
        *("conv4.weight", "conv4.bias", "fc.weight"),
    }
    controller.level = 0.5
    bare = dict(strip(controller.model).named_parameters())
    gone = bare["conv2.bias"] == 0
    assert int(gone.sum()) == 4
    assert not bare["conv2.weight"][gone].any()
    assert not bare["norm.weight"][gone].any()
    assert not bare["conv3.weight"][:, gone].any()
    assert bare["conv3.weight"][:, ~gone].all()


def test_norms_are_left_out_on_demand_and_thinning_stays_exact() -> None:
    controller = applied(prune_batch_norms=False)
    assert "norm.weight" not in controller.masks.hooks
    controller.level = 0.5
    result = thin(controller.model, INPUTS)
    assert result.max_error < 1e-12
    assert result.model.get_parameter("conv2.weight").shape[0] == 4


def test_the_weakest_filters_go() -> None:
    model = chain()
    with torch.no_grad():
        model.conv2.weight[[1, 5]] *= 1e-3
    for importance in ("L1", "L2"):
        controller = applied(chain(), filter_importance=importance)
        with torch.no_grad():
            dict(controller.model.named_parameters())["conv2.weight"].copy_(model.conv2.weight)
        controller.level = 0.25
        mask = controller.masks.hooks["conv2.bias"][0].mask
        assert mask.nonzero().flatten().tolist() == [0, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("all_weights", [False, True])
def test_a_target_of_macs_is_met_within_two_percent(all_weights: bool) -> None:
    controller = applied(
        resnet20_cifar10().double().eval(),
        torch.randn(1, 3, 32, 32, dtype=torch.float64),
        pruning_flops_target=0.4,
        all_weights=all_weights,
        prune_first_conv=True,
        prune_downsample_convs=True,
    )
    controller.level = 0.4
    assert 0.4 <= controller.statistics().macs_level < 0.42


@pytest.mark.parametrize("align", [None, 8, 16])
@pytest.mark.parametrize("all_weights", [False, True])
def test_a_target_of_macs_is_not_exceeded_for_the_sake_of_widths(
    align: int | None, all_weights: bool
) -> None:
    image = torch.randn(1, 3, 32, 32)
    controller = applied(
        resnet20_cifar10().eval(),
        image,
        pruning_flops_target=0.3,
        all_weights=all_weights,
        align=align,
        prune_first_conv=True,
        prune_downsample_convs=True,
    )
    controller.level = 0.3
    thinned = thin(controller.model, image).model
    saved = 1 - total_macs(trace(thinned, image)) / total_macs(trace(resnet20_cifar10(), image))
    assert 0.15 < saved <= 0.3  # 16 of 16 channels cannot go
    assert controller.level == pytest.approx(saved, abs=1e-9)
    assert controller.statistics().macs_level == controller.level


def test_a_wide_layer_is_not_halved_for_a_third_of_its_macs() -> None:
    model = nn.Sequential(nn.Conv2d(3, 32, 1), nn.Conv2d(32, 8, 1))
    params = {"pruning_flops_target": 0.3, "prune_first_conv": True, "align": None}
    controller = applied(model, torch.randn(2, 3, 9, 9), **params)
    controller.level = 0.3
    assert controller.statistics().channels[0].after == 24  # 22.4 at least
    assert controller.level == 0.25


def test_a_target_of_macs_scores_the_weights_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    scores = pruning_controller.weight_scores
    monkeypatch.setattr(
        pruning_controller,
        "weight_scores",
        lambda *args, **kwargs: (calls.append(0.0), scores(*args, **kwargs))[1],
    )
    controller = applied(pruning_flops_target=0.3, prune_first_conv=True)
    calls.clear()
    controller.level = 0.2
    assert len(calls) == 1


def test_the_search_for_macs_shows_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = applied(pruning_flops_target=0.3, prune_first_conv=True)
    assert "save" not in capsys.readouterr().err  # no terminal
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    controller.level = 0.25
    assert "Finding channels that save 0.25" in capsys.readouterr().err


def test_macs_out_of_reach_are_said_at_once() -> None:
    with pytest.raises(CompressionError, match=r"can save at most 0\.\d+ of the multiply-acc"):
        applied(pruning_flops_target=0.9)


def test_widths_that_hinder_a_target_are_named() -> None:
    with pytest.raises(
        CompressionError, match=r"at most 0\.000 .*because 'align' rounds widths up.*: 1"
    ):
        applied(pruning_flops_target=0.1, align=64)


def test_the_claimed_macs_are_those_of_the_thinned_model() -> None:
    controller = applied(prune_first_conv=True, prune_downsample_convs=True)
    controller.level = 0.5
    # 8, 8, 16, 16 channels become 4, 4, 8, 8 on 9x9, 9x9, 4x4, 4x4, 1
    before = 3 * 8 * 9 * 81 + 8 * 8 * 9 * 81 + 8 * 16 * 9 * 16 + 16 * 16 * 16 + 16 * 4
    after = 3 * 4 * 9 * 81 + 4 * 4 * 9 * 81 + 4 * 8 * 9 * 16 + 8 * 8 * 16 + 8 * 4
    assert controller.statistics().macs_level == pytest.approx(1 - after / before, abs=1e-12)


@pytest.mark.parametrize(
    ("build", "size"),
    [
        pytest.param(resnet20_cifar10, 32, id="resnet20"),
        pytest.param(mobilenetv2_w1, 224, id="mobilenetv2", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("all_weights", [False, True])
def test_the_masked_model_is_the_thinned_one(
    build: type[nn.Module], size: int, all_weights: bool
) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(1, 3, size, size, dtype=torch.float64)
    controller = applied(
        build().double().eval(),
        inputs,
        all_weights=all_weights,
        prune_first_conv=True,
        prune_downsample_convs=True,
    )
    controller.level = 0.4
    result = thin(controller.model, inputs)
    claimed = controller.statistics()
    assert result.max_error < 1e-12
    total = sum(one.numel() for one in controller.model.parameters())
    thinned = sum(one.numel() for one in result.model.parameters())
    assert 1 - thinned / total == pytest.approx(claimed.parameter_level, abs=1e-12)


def levels(controller: ChannelPruningController, epochs: int) -> list[float]:
    seen = []
    for _ in range(epochs):
        controller.scheduler.epoch_step()
        seen.append(controller.target_level)
    return seen


def test_the_exponential_schedule_gives_the_published_levels() -> None:
    controller = applied(pruning_target=0.5, num_init_steps=1, pruning_steps=5)
    published = [0, 0, 0.1591036, 0.2928932, 0.4053964, 0.5, 0.5]
    assert levels(controller, 7) == pytest.approx(published, abs=1e-7)


def test_the_baseline_schedule_prunes_at_once_after_the_initial_epochs() -> None:
    controller = applied(schedule="baseline", num_init_steps=2)
    assert levels(controller, 4) == [0, 0, 0.5, 0.5]


def test_the_biased_schedule_ends_at_the_last_pruning_epoch() -> None:
    controller = applied(schedule="exponential_with_bias", pruning_steps=9)
    # three quarters of the target at an eighth of the 8 epochs from the first to the last
    seen = levels(controller, 10)
    assert seen[0] == 0
    assert seen[1] == pytest.approx(0.375, abs=1e-12)
    assert seen[8:] == pytest.approx([0.5, 0.5], abs=1e-12)


def test_masks_stand_still_after_the_last_pruning_epoch() -> None:
    controller = applied(pruning_steps=2)
    levels(controller, 3)
    before = controller.masks.hooks["conv2.bias"][0].mask.clone()
    with torch.no_grad():
        for parameter in controller.model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    levels(controller, 1)
    assert torch.equal(controller.masks.hooks["conv2.bias"][0].mask, before)


class Flat(Chain):
    """The chain, of which the code holds the width of `conv4`."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv2(self.conv1(x).relu())).sigmoid()
        return self.fc(self.conv4(self.conv3(x).relu()).mean((2, 3)).view(-1, 16))


def flat(form: str) -> ChannelPruningController:
    torch.manual_seed(0)
    controller = applied(Flat().double().eval(), form=form)
    controller.level = 0.5
    return controller


def test_channels_whose_number_the_code_holds_stay_for_the_class_and_the_table_says_how() -> None:
    controller = flat("class")
    assert prunable(controller) == ["conv2"]
    reason = "the code gives 'Flat/view_0' its number of channels"
    assert controller.statistics().spared["conv4"].startswith(reason)
    assert f'Whole: conv4: {reason}; with "form": "auto"' in str(controller.statistics())
    assert type(thin(controller.model).model) is Flat


def test_channels_whose_number_the_code_holds_go_in_the_form_of_a_graph() -> None:
    controller = flat("auto")
    assert prunable(controller) == ["conv2", "conv4"]
    result = thin(controller.model)
    assert result.model.fc.in_features == 8
    assert result.exchanged.keys() == {""}


def test_the_table_names_what_an_alignment_keeps_whole() -> None:
    controller = applied(align=16, prune_downsample_convs=True)
    controller.level = 0.4
    text = str(controller.statistics())
    assert "Not pruned, as others matter less or 'align' rounds their widths up: conv2" in text


class Divided(Chain):
    """Divides by the root of a width."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv2(self.conv1(x).relu())).sigmoid()
        return self.fc(self.conv4(self.conv3(x / x.shape[1] ** 0.5).relu()).mean((2, 3)))


def test_channels_whose_number_the_code_computes_with_are_told_at_creation_and_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = applied(Divided().double().eval())
    (told,) = caplog.messages
    assert told.startswith("filter_pruning leaves the channels of 'conv2' alone: after 'Divided/")
    assert "let the module keep the result" in told
    assert prunable(controller) == ["conv4"]
    assert "computes with their number" in controller.statistics().spared["conv2"]
    controller.level = 0.5
    assert thin(controller.model).max_error < 1e-12
