"""Numbers of channels that code gives: those of a module move along, others are told."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Channels, GroupSet
from nncfx.thinning import thin

IMAGE = torch.zeros(2, 3, 6, 6)


class Between(nn.Module):
    """A convolution, code on its 8 channels, and a convolution."""

    def __init__(self, code: Callable[["Between", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.width, self.part, self.groups = 8, 3, 2
        self.stem = nn.Conv2d(3, 8, 1)
        self.scale = nn.Parameter(torch.ones(8))
        self.kernel = nn.Parameter(torch.ones(8, 1, 1, 1))
        self.code = code
        self.head = nn.LazyConv2d(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.code(self, self.stem(x)))


def analyse(
    code: Callable[[Between, torch.Tensor], torch.Tensor], *, living_norms: bool = False
) -> Channels:
    model = Between(code)
    model(IMAGE)
    return analyze_channels(model, IMAGE, living_norms=living_norms)


def widths(group_set: GroupSet) -> dict[str, list[int]]:
    return {width.attribute: width.counts.tolist() for width in group_set.widths}


def rows(group_set: GroupSet) -> list[int]:
    return sorted(group_set.origin.indices.reshape(-1).tolist())


@pytest.mark.parametrize(
    "code",
    [
        lambda m, x: x[:, : m.part],
        lambda m, x: x[:, 0 : m.part, ..., :],
        lambda m, x: x[..., : m.part, :, :],
        lambda m, x: x.narrow(1, 0, m.part),
    ],
    ids=["slice", "from zero", "ellipsis", "narrow"],
)
def test_a_bound_that_a_module_keeps_falls_with_what_lies_below_it(
    code: Callable[[Between, torch.Tensor], torch.Tensor],
) -> None:
    channels = analyse(code)
    below, above = channels.find("stem"), channels.find("stem#2")
    assert (rows(below), rows(above)) == ([0, 1, 2], [3, 4, 5, 6, 7])
    assert (widths(below), widths(above)) == ({"part": [1, 1, 1]}, {})
    assert below.fixed is None


def test_the_channels_above_a_lower_bound_may_go_without_moving_it() -> None:
    channels = analyse(lambda m, x: x[:, m.part :])
    assert [rows(one) for one in channels if one.fixed is None] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    assert [widths(one) for one in channels][:2] == [{"part": [1, 1, 1]}, {}]


@pytest.mark.parametrize(
    "code",
    [
        lambda _, x: x[:, :3],
        lambda _, x: x[:, -3:],
        lambda m, x: x[:, : m.part : 2],
        lambda m, x: x[:, : m.part * 2],
        lambda _, x: x.narrow(1, 0, 3),
        lambda _, x: x[:, [0, 2]],
    ],
    ids=["literal", "from the end", "step", "computed", "narrow", "list"],
)
def test_what_other_bounds_lie_around_must_stay(
    code: Callable[[Between, torch.Tensor], torch.Tensor],
) -> None:
    fixed = analyse(code).fixed
    assert "takes some channels by their position" in fixed["stem"]


def test_the_modules_are_named_whose_code_gives_a_bound() -> None:
    channels = analyse(lambda _, x: x[:, :3])
    assert channels.literals == {"": ("Between/__getitem___0",)}
    assert analyse(lambda m, x: x[:, : m.part]).literals == {}


def test_copies_over_a_width_of_the_module_go_with_the_channels_that_they_meet() -> None:
    channels = analyse(
        lambda m, x: x * x.mean((1, 2, 3), keepdim=True).sigmoid().expand(-1, m.width, -1, -1),
        living_norms=True,
    )
    assert channels.find("stem").size == 8
    assert widths(channels.find("stem")) == {"width": [1] * 8}


@pytest.mark.parametrize(
    "code",
    [
        lambda _, x: x.view(2, 8, 36).unflatten(2, (6, 6)),
        lambda _, x: torch.cat(x.split(4, 1)[::-1], 1),
        lambda m, x: F.conv2d(x, m.kernel, groups=8),
        lambda m, x: x * m.scale.view(1, 8, 1, 1),
        lambda m, x: F.layer_norm(x.movedim(1, 3), (8,), m.scale).movedim(3, 1),
        lambda m, x: x.reshape(2, m.width * 36).view(2, -1, 6, 6),
    ],
    ids=["view", "split", "groups", "view of a vector", "layer_norm", "product"],
)
def test_a_number_that_only_the_code_knows_holds_its_channels(
    code: Callable[[Between, torch.Tensor], torch.Tensor],
) -> None:
    stem = analyse(code, living_norms=True).find("stem")
    assert stem.fixed is None
    assert stem.held.startswith("Between/")


@pytest.mark.parametrize(
    "code",
    [
        lambda m, x: x.view(2, m.width, 36).unflatten(2, (6, 6)),
        lambda _, x: x.view(2, -1, 36).unflatten(2, (6, 6)),
        lambda _, x: x.reshape(2, x.shape[1] * 36).view(2, -1, 6, 6),
        lambda _, x: x.reshape(2, 36 * x.shape[1] * 1).view(2, -1, 6, 6),
        lambda _, x: x.reshape(*x.shape[:2], 6, 6),
        lambda _, x: torch.cat(x.split(x.shape[1] // 2, 1)[::-1], 1),
        lambda m, x: x * m.scale.view(1, m.width, 1, 1),
        lambda _, x: torch.cat(x.split(1)),
    ],
    ids=["attribute", "free", "product", "two", "shape", "half", "view of a vector", "images"],
)
def test_a_number_from_a_module_or_from_a_tensor_holds_nothing(
    code: Callable[[Between, torch.Tensor], torch.Tensor],
) -> None:
    stem = analyse(code).find("stem")
    assert (stem.fixed, stem.held) == (None, None)


def test_a_number_of_groups_of_a_functional_norm_falls_with_its_groups() -> None:
    channels = analyse(lambda m, x: F.group_norm(x, m.groups, m.scale), living_norms=True)
    assert channels.find("stem").size == 2
    assert widths(channels.find("stem")) == {"groups": [1, 1]}


class _Octave(nn.Conv2d):
    """Reads two inputs and makes two outputs with blocks of one weight, 5 x 6."""

    def __init__(self, *, is_literal: bool = False) -> None:
        super().__init__(6, 5, 1)
        self.high_in, self.high_out, self.is_literal = 4, 3, is_literal

    def forward(self, high: torch.Tensor, low: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        i, o = (4, 3) if self.is_literal else (self.high_in, self.high_out)
        w, bias = self.weight, self.bias
        one = F.conv2d(high, w[:o, :i], bias[:o])
        return one + F.conv2d(low, w[0:o, i:, :, :]), F.conv2d(high, w[o:, 0:i], bias[o:])


class _Octaves(nn.Module):
    def __init__(self, *, is_literal: bool = False) -> None:
        super().__init__()
        self.high, self.low = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 2, 1)
        self.both = _Octave(is_literal=is_literal)
        self.last_high, self.last_low = nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high, low = self.both(self.high(x).relu(), self.low(x).relu())
        return self.last_high(high.relu()) + self.last_low(low.relu())


def test_blocks_of_a_weight_read_and_make_channels_of_their_own() -> None:
    """Rows 0 to 2 are the high outputs, columns 4 and 5 the low inputs; two integers say so."""
    found = {
        one.name: (
            [(m.parameter, m.axis, m.indices[:, 0].tolist()) for m in one.members],
            [(w.module, w.attribute, w.counts.tolist()) for w in one.widths],
        )
        for one in analyze_channels(_Octaves(), torch.zeros(1, 3, 2, 2)).prunable
    }
    assert found == {
        "high": (
            [
                ("high.weight", 0, [0, 1, 2, 3]),
                ("high.bias", 0, [0, 1, 2, 3]),
                ("both.weight", 1, [0, 1, 2, 3]),
            ],
            [("both", "high_in", [1, 1, 1, 1])],
        ),
        "low": (
            [("low.weight", 0, [0, 1]), ("low.bias", 0, [0, 1]), ("both.weight", 1, [4, 5])],
            [],
        ),
        "both": (
            [
                ("both.weight", 0, [0, 1, 2]),
                ("both.bias", 0, [0, 1, 2]),
                ("last_high.weight", 1, [0, 1, 2]),
            ],
            [("both", "high_out", [1, 1, 1])],
        ),
        "both#2": (
            [("both.weight", 0, [3, 4]), ("both.bias", 0, [3, 4]), ("last_low.weight", 1, [0, 1])],
            [],
        ),
    }


def test_a_layer_of_blocks_is_thinned_exactly() -> None:
    torch.manual_seed(0)
    model = _Octaves().double()
    with torch.no_grad():
        model.both.weight[:, [1, 5]] = 0
        model.last_high.weight[:, 2] = 0
        model.last_low.weight[:, 0] = 0
    result = thin(model, torch.randn(1, 3, 2, 2, dtype=torch.float64))
    both = result.model.get_submodule("both")
    assert result.max_error < 1e-14
    assert (both.weight.shape, both.high_in, both.high_out) == ((3, 4, 1, 1), 3, 2)


def test_blocks_whose_bounds_stand_in_the_code_are_not_followed() -> None:
    fixed = analyze_channels(_Octaves(is_literal=True), torch.zeros(1, 3, 2, 2)).fixed
    assert (
        fixed["high"] == "'_Octaves/_Octave[both]/conv2d_0' has a weight that is not a parameter"
    )
