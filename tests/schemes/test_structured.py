"""Structured pruning is Condensa's when unbound, and exact channel removal when bound."""

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorchcv.models.mobilenetv2 import mobilenetv2_wd4
from pytorchcv.models.resnet import resnet10
from torch import nn
from transformers.pytorch_utils import Conv1D

from nncfx.channels.trace import analyze_channels
from nncfx.errors import CompressionError
from nncfx.graph.channels import Channels, GroupSet
from nncfx.schemes import FilterPrune, NeuronPrune, Scheme, StructurePrune, nonzero_parameters
from nncfx.thinning import thin

SCHEMES = [FilterPrune(), NeuronPrune("max"), StructurePrune("scaled_l2norm")]


def changed(model: nn.Module, before: nn.Module) -> set[str]:
    old = dict(before.named_parameters())
    return {n for n, p in model.named_parameters() if not torch.equal(p, old[n])}


def test_filters_below_the_threshold_go_with_their_biases() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 1, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1.0, -5.0, 3.0, 2.0]).view(4, 1, 1, 1))
        # one filter of L2 norm 4
        model[2].weight.fill_(2.0)
    before = model[0].bias.detach().clone()
    FilterPrune().compress(model, 0.4)
    assert model[0].weight.flatten().tolist() == [0.0, -5.0, 3.0, 0.0]
    assert model[2].weight.flatten().tolist() == [2.0] * 4
    assert model[0].bias.tolist() == [0.0, before[1].item(), before[2].item(), 0.0]


def test_biases_stay_where_asked() -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    before = model[0].bias.detach().clone()
    NeuronPrune(prune_bias=False).compress(model, 0.5)
    assert torch.equal(model[0].bias, before)
    assert NeuronPrune(prune_bias=False).parameters(model) == {"0.weight"}
    assert NeuronPrune().parameters(model) == {"0.weight", "0.bias"}


def test_each_scheme_looks_at_its_own_layers(convnet: nn.Module) -> None:
    for scheme, touched in (
        (FilterPrune(), {"0.weight", "0.bias", "3.weight", "3.bias"}),
        (NeuronPrune(), {"6.weight", "6.bias", "8.weight", "8.bias"}),
    ):
        model = copy.deepcopy(convnet)
        scheme.compress(model, 0.5)
        assert changed(model, convnet) <= touched == scheme.parameters(model)


def test_structure_prune_has_one_threshold_for_rows_and_filters() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.fill_(1.0)  # filters of norm 2
        model[2].weight.fill_(1.0)  # rows of norm 1.41
    StructurePrune().compress(model, 0.5)
    assert model[0].weight.count_nonzero() == 8
    assert model[2].weight.count_nonzero() == 0


def test_align_rounds_each_layer_down(convnet: nn.Module) -> None:
    FilterPrune(align=4).compress(convnet, 0.3)
    for index in (0, 3):
        alive = int((convnet[index].weight.flatten(1).abs().sum(1) > 0).sum())
        assert alive % 4 == 0


def test_align_above_a_layer_names_it(convnet: nn.Module) -> None:
    with pytest.raises(CompressionError, match=r"'8' has 4 rows, fewer than align, which is 8"):
        NeuronPrune(align=8).compress(convnet, 0.3)


@given(level=st.floats(0.0, 0.95))
@settings(deadline=None)
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_projecting_twice_is_projecting_once(scheme: Scheme, bound: bool, level: float) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.Conv2d(8, 16, 3),
        nn.Flatten(),
        nn.Linear(16, 32),
        nn.Linear(32, 24),
        nn.Linear(24, 5),
    )
    if bound:
        scheme = scheme.bind(analyze_channels(model, torch.ones(1, 1, 5, 5)))
    try:
        scheme.compress(model, level)
    except CompressionError:  # so high a level that unbound pruning keeps no row
        return
    once = copy.deepcopy(model)
    scheme.compress(model, level)
    assert not changed(model, once)


def test_structured_schemes_say_so() -> None:
    assert all(scheme.is_structured for scheme in SCHEMES)


def test_a_bound_scheme_zeroes_both_sides_and_the_norm(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    buffers = {name: b.clone() for name, b in convnet.named_buffers()}
    FilterPrune().bind(convnet_channels).compress(convnet, 0.5)
    dead = convnet[0].weight.flatten(1).abs().sum(1) == 0
    assert 0 < int(dead.sum()) < 8
    assert not convnet[0].bias[dead].any()
    assert not convnet[1].weight[dead].any()
    assert not convnet[1].bias[dead].any()
    assert not convnet[3].weight[:, dead].any()
    assert convnet[0].bias[~dead].all()
    assert all(torch.equal(b, buffers[name]) for name, b in convnet.named_buffers())


@pytest.mark.parametrize("scheme", [FilterPrune(), StructurePrune("l1norm")])
def test_dead_channels_carry_nothing_whatever_stands_between(
    scheme: Scheme, convnet: nn.Module, convnet_channels: Channels
) -> None:
    """Noise in the dead channels' inputs does not reach the output."""
    scheme.bind(convnet_channels).compress(convnet, 0.5)
    inputs = torch.randn(4, 3, 8, 8)
    reference = convnet(inputs)
    dead = convnet[0].weight.flatten(1).abs().sum(1) == 0

    def disturb(_module: nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        noisy = output.clone()
        noisy[:, dead] = 1e6
        return noisy

    convnet[2].register_forward_hook(disturb)
    assert torch.equal(convnet(inputs), reference)


def test_a_bound_scheme_leaves_the_fixed_sets(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    StructurePrune().bind(convnet_channels).compress(convnet, 0.9)
    assert (convnet[8].weight.abs().sum(1) > 0).all()
    assert convnet[8].bias.all()


def test_a_bound_scheme_never_empties_a_set(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    with torch.no_grad():
        convnet[0].weight.mul_(1e-6)
    StructurePrune(normalize=False).bind(convnet_channels).compress(convnet, 0.95)
    assert all(convnet[i].weight.any() for i in (0, 3, 6, 8))


def test_filters_and_neurons_pick_their_sets(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    filters = FilterPrune().bind(convnet_channels).parameters(convnet)
    neurons = NeuronPrune().bind(convnet_channels).parameters(convnet)
    assert filters == {
        *("0.weight", "0.bias", "1.weight", "1.bias"),
        *("3.weight", "3.bias", "6.weight"),
    }
    assert neurons == {"6.weight", "6.bias", "8.weight"}


def test_an_ignored_producer_keeps_its_set(convnet: nn.Module, convnet_channels: Channels) -> None:
    before = convnet[3].weight.detach().clone()
    FilterPrune(ignored=("0",)).bind(convnet_channels).compress(convnet, 0.5)
    assert convnet[0].weight.flatten(1).any(1).all()
    assert (convnet[3].weight != before).any()


def test_channels_that_are_all_fixed_are_refused_with_the_reasons(convnet: nn.Module) -> None:
    channels = Channels((GroupSet(name="8", size=4, members=(), fixed="the model's output"),))
    with pytest.raises(CompressionError, match="Fixed are 8: the model's output"):
        FilterPrune().bind(channels).compress(convnet, 0.5)


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("scheme", [NeuronPrune("l1norm"), StructurePrune("l1norm")])
def test_linear_layers_of_gpt_2_are_pruned_as_their_turned_twins(
    scheme: NeuronPrune | StructurePrune, bound: bool
) -> None:
    torch.manual_seed(0)
    twin = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3))
    turned = nn.Sequential(Conv1D(8, 5), nn.GELU(), Conv1D(3, 8))
    state = twin.state_dict()
    turned.load_state_dict({n: one.T if one.ndim > 1 else one for n, one in state.items()})
    for model in (twin, turned):
        channels = analyze_channels(model, torch.ones(1, 5))
        (scheme.bind(channels) if bound else scheme).compress(model, 0.5)
    for name, one in twin.state_dict().items():
        assert torch.equal(turned.state_dict()[name], one.T if one.ndim > 1 else one)
    assert 0 < int((turned[0].weight == 0).all(0).sum()) < 8


@pytest.mark.parametrize("build", [resnet10, mobilenetv2_wd4])
def test_thinning_removes_exactly_what_a_bound_scheme_zeroed(
    build: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    model = build().double().eval()
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
    inputs = torch.randn(1, 3, 224, 224, dtype=torch.float64)
    FilterPrune(align=8).bind(analyze_channels(model, inputs)).compress(model, 0.5)
    thinned = thin(model, inputs)
    assert thinned.max_error < 1e-12
    assert not thinned.fixed
    # nothing that is left is zero, and nothing that is not zero went
    sizes = sum(p.numel() for p in thinned.model.parameters())
    assert sizes == nonzero_parameters(model)
    before, after = (
        [m.out_channels for m in one.modules() if isinstance(m, nn.Conv2d)]
        for one in (model, thinned.model)
    )
    assert all(new in (old, new // 8 * 8) for old, new in zip(before, after, strict=True))
    assert sum(after) < sum(before)
