"""Filter pruning without constraints: every layer chooses its own channels."""

import pytest
import torch
from torch import Tensor, nn

from nncfx.algorithms.channel_pruning.controller import ChannelPruningController
from nncfx.export import reorder_channels
from nncfx.network import strip
from nncfx.training.create import create_compressed_model


class Fork(nn.Module):
    """A sum of two producers that two convolutions and a third one read."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.body_norm = nn.BatchNorm2d(8)
        self.left = nn.Conv2d(8, 4, 1)
        self.right = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        x = x + self.body_norm(self.body(x.relu()))
        return self.left(x) + self.right(x)


INPUTS = torch.randn(1, 3, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def applied(**given: object) -> ChannelPruningController:
    torch.manual_seed(0)
    scopes = {key: given.pop(key) for key in ("ignored_scopes",) if key in given}
    fixed = {"align": 1, "constrained": False, "prune_first_conv": True, "schedule": "baseline"}
    params = {**fixed, **given}
    item = {"algorithm": "filter_pruning", "params": params, **scopes}
    model = Fork().double().eval()
    for norm in (model.norm, model.body_norm):
        nn.init.uniform_(norm.bias, 0.5, 1.5)
    controller, _ = create_compressed_model(model, {"compression": item}, INPUTS)
    controller.level = 0.5
    return controller


def living(weight: Tensor, axis: int) -> list[int]:
    return torch.nonzero(weight.movedim(axis, 0).reshape(weight.shape[axis], -1).any(dim=1))[
        :, 0
    ].tolist()


def test_every_consumer_keeps_the_channels_that_it_weighs_most() -> None:
    controller = applied(filter_importance="L1")
    plain = strip(controller.model)
    for layer in ("body", "left", "right"):
        weight = controller.model.get_parameter(f"{layer}.weight").detach()
        sums = weight.abs().sum(dim=(0, 2, 3))
        best = sorted(sums.argsort(descending=True)[:4].tolist())
        assert living(plain.get_submodule(layer).weight, 1) == best
    assert living(plain.stem.weight, 0) == list(range(8))


def test_on_the_output_side_every_producer_keeps_its_own_and_its_norm_is_silent() -> None:
    plain = strip(applied(filter_importance="L1", pruning_side="output").model)
    stem, body = living(plain.stem.weight, 0), living(plain.body.weight, 0)
    assert len(stem) == len(body) == 4
    assert living(plain.body_norm.weight, 0) == living(plain.body_norm.bias, 0) == body
    # what the norm puts out has two readers, but the stem has only the norm
    assert living(plain.norm.bias, 0) == stem
    assert living(plain.left.weight, 1) == sorted({*stem, *body})


@pytest.mark.parametrize("side", ["input", "output"])
def test_the_reordered_model_computes_what_the_masked_one_does(side: str) -> None:
    controller = applied(pruning_side=side)
    result = reorder_channels(controller.model, INPUTS, target=None)
    fresh = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    expected = controller.model.eval()(fresh)
    # sums of some hundred terms of order 1
    assert torch.allclose(result.model.eval()(fresh), expected, rtol=0, atol=1e-12)


def test_statistics_count_what_each_layer_keeps() -> None:
    statistics = applied().statistics()
    names = {one.name: (one.before, one.after) for one in statistics.channels}
    assert names == dict.fromkeys(["body.weight", "left.weight", "right.weight"], (8, 4))
    assert statistics.level == 0.5
    assert "body.weight" in statistics.to_str()


def test_one_ranking_over_all_layers_keeps_the_exact_number() -> None:
    statistics = applied(all_weights=True).statistics()
    assert sum(one.after for one in statistics.channels) == 12


def test_a_target_of_multiply_accumulates_is_met_and_hardly_exceeded() -> None:
    controller = applied(pruning_flops_target=0.25)
    controller.level = 0.25
    assert 0.25 <= controller.statistics().macs_level < 0.4


def test_a_layer_outside_the_scopes_keeps_what_it_reads() -> None:
    controller = applied(ignored_scopes=["Fork/Conv2d[left]/conv2d_0"])
    plain = strip(controller.model)
    assert living(plain.left.weight, 1) == list(range(8))
    assert len(living(plain.right.weight, 1)) == 4
