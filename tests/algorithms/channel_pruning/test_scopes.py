"""Which channel groups a config spares."""

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.algorithms.channel_pruning.scopes import producing_operations, spare
from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Channels
from nncfx.network import wrap

INPUTS = torch.ones(1, 3, 12, 12)


class Net(nn.Module):
    """Two branches from the input; a functional convolution with a stride."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3, padding=1)
        self.right = nn.Conv2d(3, 5, 3, padding=1)
        self.kernel = nn.Parameter(torch.ones(6, 9, 3, 3))
        self.wide = nn.Conv2d(6, 7, 5)
        self.last = nn.Conv2d(7, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.left(x), self.right(x.relu())], dim=1)
        x = nn.functional.conv2d(x, self.kernel, stride=2, padding=1)
        return self.last(self.wide(x))


def spared(*, first: bool = False, downsampling: bool = False, ignored: str = "") -> Channels:
    model = wrap(Net(), INPUTS)
    graph = model.nncf.graph
    considered = [one for one in graph.operations if not ignored or ignored not in one.address]
    channels = analyze_channels(model, INPUTS)
    return spare(channels, model, graph, considered, first=first, downsampling=downsampling)


def carriers(channels: Channels) -> set[str]:
    return {
        member.parameter
        for group_set in channels.prunable
        for member in group_set.members
        if member.role == "producer" and "bias" not in member.parameter
    }


def test_without_anything_spared_all_stay_prunable() -> None:
    assert carriers(spared()) == {"left.weight", "right.weight", "kernel", "wide.weight"}


def test_every_convolution_that_sees_the_input_first_is_spared() -> None:
    assert carriers(spared(first=True)) == {"kernel", "wide.weight"}


def test_a_functional_convolution_with_a_stride_is_spared_and_a_wide_one_is_not() -> None:
    assert carriers(spared(downsampling=True)) == {"left.weight", "right.weight", "wide.weight"}


def test_a_producer_outside_the_scopes_is_spared_with_its_address() -> None:
    channels = spared(ignored="[wide]")
    assert "wide.weight" not in carriers(channels)
    assert any("Net/Conv2d[wide]/conv2d_0" in reason for reason in channels.fixed.values())


def test_what_was_fixed_keeps_its_reason() -> None:
    assert any("output" in reason for reason in spared(ignored="[last]").fixed.values())


@pytest.mark.parametrize("stride", [1, 2])
def test_a_module_is_judged_by_its_stride(stride: int) -> None:
    model = wrap(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 7, stride), nn.Conv2d(4, 2, 1)), INPUTS
    )
    graph = model.nncf.graph
    channels = analyze_channels(model, INPUTS)
    channels = spare(channels, model, graph, graph.operations, downsampling=True)
    assert ("1.weight" in carriers(channels)) == (stride == 1)


def test_buffers_that_make_a_weight_have_no_other_name() -> None:
    orthogonal = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
    model = wrap(nn.Sequential(nn.Linear(3, 4), orthogonal), torch.ones(2, 3))
    made = producing_operations(model.nncf.channels, model, model.nncf.graph)
    assert "Sequential/Linear[0]/linear_0" in {one.address for each in made for one in each}


def test_what_a_buffer_makes_is_left_and_the_rest_pruned() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner, self.last = (
                nn.Conv2d(n, 16, 3, padding=1) for n in (3, 16, 16)
            )
            self.register_buffer("kernel", torch.ones(16, 16, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            x = nn.functional.conv2d(self.first(x).relu(), self.kernel, padding=1)
            return self.last(self.inner(x).relu())

    params = {"prune_first_conv": True, "align": 1}
    item = {"algorithm": "filter_pruning", "pruning_init": 0.5, "params": params}
    controller, model = nncfx.create_compressed_model(Fixed(), {"compression": item}, INPUTS)
    assert controller.statistics().spared["kernel"].startswith("no parameter produces them")
    widths = {name: one.shape[0] for name, one in nncfx.thin(model).model.named_parameters()}
    assert widths["inner.weight"] == 8
