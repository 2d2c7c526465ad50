"""Reordered models compute what the masked ones do, with slices in place of copies."""

import copy
import dataclasses
import io
import pickle
from pathlib import Path

import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nncfx import wrap
from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, ExportError
from nncfx.export import SelectionCost, export_onnx, reorder_channels
from nncfx.schemes import Ranking, unconstrained_masks
from nncfx.tracing import trace

FREE = SelectionCost(
    slice_ns=0, slice_number_ns=0, is_slice_view=True, gather_ns=0, gather_number_ns=0, mac_ns=1
)


class Fork(nn.Module):
    """One producer, three consumers, one of them after a batch norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.left = nn.Conv2d(8, 4, 1)
        self.right = nn.Conv2d(8, 4, 3, padding=1)
        self.own = nn.BatchNorm2d(8)
        self.middle = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        return self.left(x) + self.right(x) + self.middle(self.own(x).relu())


class Dense(nn.Module):
    """Two dense layers on a growing concatenation, and a linear head behind a flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 1)
        self.one = nn.Conv2d(6, 5, 3, padding=1)
        self.two = nn.Conv2d(11, 5, 3, padding=1)
        self.side = nn.Conv2d(11, 4, 1)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(20 * 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.one(x).relu()], 1)
        x = torch.cat([x, self.two(x).relu(), self.side(x).sigmoid()], 1)
        return self.head(self.pool(x).flatten(1))


class Residual(nn.Module):
    """Two producers that are added, depthwise and PReLU followers, squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.act = nn.PReLU(8)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.body = nn.Conv2d(8, 8, 1, bias=False)
        self.head = nn.ConvTranspose2d(8, 3, 2)
        self.other = nn.Conv2d(8, 3, 2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.deep(self.stem(x)))
        x = x * self.excite(self.squeeze(x.mean((2, 3), keepdim=True)).relu()).sigmoid()
        x = x + self.body(x)
        return self.head(x) + self.other(x)


class Shuffled(nn.Module):
    """Channels that are interleaved, and joined in two arrangements."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 6, 1)
        self.b = nn.Conv2d(3, 6, 1)
        self.ab = nn.Conv2d(12, 4, 1)
        self.ba = nn.Conv2d(12, 4, 1)
        self.mixed = nn.Conv2d(12, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.a(x), self.b(x)
        mixed = torch.stack([a, b], 2).flatten(1, 2)
        joined = self.ab(torch.cat([a, b], 1)) + self.ba(torch.cat([b, a], 1))
        return joined + self.mixed(mixed)


MODELS = (Fork, Dense, Residual, Shuffled)


def made(kind: type[nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = kind().double().eval()
    for name, tensor in model.state_dict().items():
        if tensor.dim() == 1:
            tensor.uniform_(0.5, 1.5)
            if "mean" in name or name.endswith("bias"):
                tensor.sub_(1)
    return model


def image() -> torch.Tensor:
    return torch.randn(1, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def mask(
    model: nn.Module, level: float, x: torch.Tensor | None = None, **ranking: object
) -> nn.Module:
    x = image() if x is None else x
    weights = dict(model.named_parameters())
    masks = unconstrained_masks(
        analyze_channels(model, x),
        weights,
        level,
        Ranking(criterion="l1norm", **ranking),
        graph=trace(model, x),
    )
    with torch.no_grad():
        for name, one in masks.items():
            weights[name].mul_(one)
    return model


def keep(model: nn.Module, layer: str, columns: list[int]) -> None:
    weight = model.get_submodule(layer).weight
    gone = [one for one in range(weight.shape[1]) if one not in columns]
    with torch.no_grad():
        weight[:, gone] = 0


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.integers(0, 1000),
    st.sampled_from([0.2, 0.5, 0.8]),
    st.sampled_from(["input", "output"]),
    st.booleans(),
)
def test_reorder_then_run_equals_run(
    kind: type[nn.Module], seed: int, level: float, side: str, reorder: bool
) -> None:
    model = made(kind, seed)
    masked = mask(model, level, side=side)
    result = reorder_channels(masked, image(), target=None, reorder=reorder)
    fresh = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    # sums of some hundred terms of order 1
    assert torch.allclose(result.model(fresh), masked(fresh), rtol=0, atol=1e-12)
    assert result.max_error <= 1e-12


def test_two_overlapping_consumers_read_slices() -> None:
    model = made(Fork)
    keep(model, "left", [0, 5, 6])
    keep(model, "right", [2, 5, 7])
    keep(model, "middle", [0, 2, 5, 6, 7])
    result = reorder_channels(model, image(), target=None)
    assert set(result.orders) == {"stem"}
    assert result.model.stem.out_channels == 5
    kinds = {name: one.kind for name, one in result.reads.items()}
    assert kinds == {"left": "slice", "right": "slice", "middle": "all"}
    assert result.copied == 0


def test_a_slice_of_everything_is_no_operation() -> None:
    model = made(Fork)
    keep(model, "left", [1, 3])
    keep(model, "right", [1, 3])
    keep(model, "middle", [1, 3])
    result = reorder_channels(model, image(), target=None)
    assert not any("selection" in name for name, _ in result.model.named_modules())


def test_without_reordering_scattered_consumers_gather() -> None:
    model = made(Fork)
    keep(model, "left", [0, 2, 4, 6])
    keep(model, "right", [4, 6, 7])
    result = reorder_channels(model, image(), target=None, reorder=False)
    assert not result.orders
    assert result.reads["left"].kind == result.reads["right"].kind == "gather"
    assert result.copied == 4 + 3
    assert result.copied_numbers == 7 * 64


def test_a_ring_copies_only_its_cheapest_side() -> None:
    model = made(Fork)
    keep(model, "left", [0, 1, 2, 3, 4])
    keep(model, "right", [4, 5, 6, 7])
    keep(model, "middle", [0, 7])
    result = reorder_channels(model, image(), target=None)
    assert result.reads["middle"].kind == "gather"
    assert result.copied == 2


def test_slices_of_a_concatenation_reach_over_its_parts() -> None:
    model = made(Dense)
    keep(model, "two", [1, 3, 7, 8])  # of the stem 1 and 3, of the first layer 1 and 2
    result = reorder_channels(model, image(), target=None)
    assert result.reads["two"].kind == "slice"
    assert result.copied == 0


def test_dead_channels_are_read_where_selecting_costs_more() -> None:
    model = made(Fork)
    keep(model, "left", [0, 1, 2, 3, 4])
    keep(model, "right", [4, 5, 6, 7])
    keep(model, "middle", [0, 7])
    dear = dataclasses.replace(FREE, slice_ns=1e9, gather_ns=1e9)
    result = reorder_channels(model, image(), target=dear)
    assert {one.kind for one in result.reads.values()} == {"all"}
    assert result.max_error <= 1e-12
    assert reorder_channels(model, image(), target=FREE).copied == 2


def test_the_copy_keeps_class_names_and_mode_and_the_model_is_left_as_it_was() -> None:
    model = made(Fork)
    keep(model, "left", [0, 2, 4])
    before = copy.deepcopy(model.state_dict())
    model.train()
    result = reorder_channels(model, image(), target=None)
    assert type(result.model) is Fork
    assert result.model.training
    assert set(result.model.state_dict()) == set(before)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_a_wrapped_model_is_stripped() -> None:
    model = made(Fork)
    keep(model, "left", [0, 2, 4])
    result = reorder_channels(wrap(model, image()), image(), target=None)
    assert type(result.model) is Fork


def test_a_reordered_model_survives_pickle_deepcopy_and_torch_export() -> None:
    model = mask(made(Residual), 0.5)
    small = reorder_channels(model, image(), target=None).model
    expected = small(image())
    program = torch.export.export(small, (image(),))
    stream = io.BytesIO(pickle.dumps(small))
    assert torch.equal(pickle.load(stream)(image()), expected)  # noqa: S301 (our own bytes)
    assert torch.equal(copy.deepcopy(small)(image()), expected)
    assert torch.allclose(program.module()(image()), expected, rtol=0, atol=1e-12)


def test_onnx_runtime_computes_what_the_reordered_model_does(tmp_path: Path) -> None:
    small = reorder_channels(mask(made(Fork), 0.5), image(), target=None).model.float()
    path = tmp_path / "small.onnx"
    export_onnx(small, path, image().float())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: image().float().numpy()})
    assert torch.allclose(torch.from_numpy(output), small(image().float()), atol=1e-5)


def test_layers_that_need_the_same_gather_share_it() -> None:
    model = made(Fork)
    keep(model, "left", [0, 2, 5])
    keep(model, "right", [0, 2, 5])
    result = reorder_channels(model, image(), target=None, reorder=False)
    assert [result.reads[one].kind for one in ("left", "right")] == ["gather", "shared"]
    assert result.copied == 3
    with torch.profiler.profile() as profile:
        result.model(image())
    calls = {one.key: one.count for one in profile.key_averages()}
    assert calls["aten::index_select"] == 1
    fresh = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert torch.allclose(result.model(fresh), model(fresh), rtol=0, atol=1e-12)


def test_producers_compute_only_rows_that_are_not_zero() -> None:
    model = made(Residual)
    with torch.no_grad():
        model.body.weight[[1, 2, 6]] = 0
    result = reorder_channels(model, image(), target=None)
    assert result.model.body.out_channels == 5
    write = result.writes["body"]
    assert (write.width, write.computed) == (8, 5)
    assert result.max_error <= 1e-12
    dear = dataclasses.replace(FREE, gather_ns=1e9)
    assert reorder_channels(model, image(), target=dear).writes == {}


def test_layers_that_share_a_weight_read_alike() -> None:
    model = made(Fork)
    model.middle.weight = model.left.weight
    keep(model, "left", [1, 5, 6])
    result = reorder_channels(model, image(), target=None)
    assert result.model.middle.weight is result.model.left.weight
    assert result.model.left.in_channels == 3
    assert result.max_error <= 1e-12


def test_what_layers_keep_can_be_said_instead_of_masked() -> None:
    model = made(Fork)
    keeps = {"left": [0, 2], "right": torch.arange(8) < 4}
    said = reorder_channels(model, image(), keeps=keeps, target=None)
    assert said.reads["left"].needed == 2
    assert said.reads["right"].needed == 4
    keep(model, "left", [0, 2])
    keep(model, "right", [0, 1, 2, 3])
    assert torch.allclose(said.model(image()), model(image()), rtol=0, atol=1e-12)


def test_a_runtime_without_measured_costs_selects_exactly_and_says_so() -> None:
    model = mask(made(Fork), 0.5)
    exact = reorder_channels(model, image(), target=None)
    result = reorder_channels(model, image(), target="tensorrt")
    assert result.reads == exact.reads
    assert exact.note == ""
    assert str(result).endswith(
        "What selecting channels costs in tensorrt is not known (no GPU was at hand when costs "
        "were measured): layers read what they need and no more, whatever that costs."
    )


@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
def test_where_selecting_saves_nothing_it_is_said_with_the_fix(target: str) -> None:
    """ResNet-20 at level 0.2: selecting a few of 16 to 64 channels costs more than it spares."""
    resnet = pytest.importorskip("pytorchcv.models.resnet_cifar")
    torch.manual_seed(0)
    model, x = resnet.resnet20_cifar10().eval(), torch.randn(1, 3, 32, 32)
    masked = mask(model, 0.2, x)
    result = reorder_channels(masked, x, target=target)
    count = sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in result.model.parameters()) == count
    needless = sum(one.needed < one.read for one in result.reads.values())
    assert needless > 0
    assert result.note == (
        f"Nothing saved: {needless} of {len(result.reads)} layers need fewer channels than they "
        f"read, but in {target} selecting them takes longer than computing with the others. "
        "Mask more, prune layers together instead (filter_pruning, then nncfx.thin), which "
        "copies nothing, or pass target=None for the fewest parameters, whatever that costs."
    )
    assert result.note in str(result)
    free = reorder_channels(masked, x, target=None)
    assert sum(p.numel() for p in free.model.parameters()) < count
    assert free.note == ""


def test_a_model_without_masks_saves_nothing_and_says_so() -> None:
    result = reorder_channels(made(Fork), image())
    assert result.note.startswith("Nothing saved: no layer has zeros for whole channels")


def test_an_unknown_target_is_refused_with_the_nearest() -> None:
    with pytest.raises(ArgumentError, match=r"Did you mean 'onnxruntime'\?"):
        reorder_channels(made(Fork), image(), target="onnxruntim")


def test_a_difference_is_an_error_that_says_what_moved() -> None:
    model = made(Fork)
    keep(model, "left", [0, 2])
    with pytest.raises(ExportError, match=r"differs from the masked one.*'stem'.*reorder=False"):
        reorder_channels(model.float(), image().float(), tolerance=0)
