"""Code that computes widths, or makes weights from parameters, loses channels all the same."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from nncfx.graph.channels import Channels, Role
from nncfx.schemes import group_masks, zero_groups
from nncfx.thinning import ThinResult, prunable_channels, thin
from small_models import Function

Module = Callable[..., nn.Module]


def first_half_unread(model: nn.Module, channels: Channels) -> dict[str, int]:
    """Zero what reads the first half of each set's groups; return how many go."""
    parameters = dict(model.named_parameters())
    gone = {}
    for group_set in channels.prunable:
        groups = range(group_set.size // 2)
        for member in group_set.by_role(Role.CONSUMER):
            index = torch.from_numpy(member.entries(groups))
            parameters[member.parameter].data.index_fill_(member.axis, index, 0.0)
        if groups and group_set.by_role(Role.CONSUMER):
            gone[group_set.name] = len(groups)
    return gone


def halved(model: nn.Module, x: torch.Tensor, *, living_norms: bool = False) -> ThinResult:
    torch.manual_seed(0)
    model, x = model.double().eval(), x.double() if x.is_floating_point() else x
    channels = prunable_channels(model, x, living_norms=living_norms)
    gone = first_half_unread(model, channels)
    result = thin(model, x, channels=channels)
    assert {name: len(one) for name, one in result.removed.items()}.keys() == gone.keys()
    assert result.max_error < 1e-12
    return result


class Standardised(nn.Conv2d):
    """A convolution of weights that have mean 0 and deviation 1 in every row."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3)
        self.gain = nn.Parameter(torch.rand(outputs, 1, 1, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        gain = (self.gain * 0.3).view(-1)
        weight = F.batch_norm(rows, None, None, gain, training=True, momentum=0.0)
        return F.conv2d(x, weight.reshape_as(self.weight), self.bias)


def standardised() -> nn.Module:
    return nn.Sequential(Standardised(3, 6), nn.ReLU(), Standardised(6, 4), nn.Flatten(1))


def test_standardised_weights_have_statistics_of_living_channels() -> None:
    model = standardised()
    x = torch.rand(2, 3, 8, 8)
    result = halved(model, x, living_norms=True)
    assert result.removed == {"0": (0, 1, 2)}
    # by hand: the second layer's rows over the columns that are left
    weight = model[2].weight.detach()[:, 3:]
    flat = weight.reshape(4, -1)
    deviation = (flat.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    flat = (flat - flat.mean(1, keepdim=True)) / deviation
    weight = (flat * model[2].gain.detach().reshape(4, 1) * 0.3).reshape(weight.shape)
    hidden = F.relu(model[0](x.double()))[:, 3:]
    expected = F.conv2d(hidden, weight, model[2].bias).flatten(1)
    torch.testing.assert_close(result.model(x.double()), expected, rtol=1e-12, atol=1e-12)


def test_standardised_weights_fix_what_they_read_without_living_norms() -> None:
    channels = prunable_channels(standardised(), torch.rand(2, 3, 8, 8))
    assert channels.prunable == ()
    assert "normalises over what reads it" in channels.fixed["0"]


class Masked(nn.Conv2d):
    """A convolution of which a mask takes weights, before or behind the weight."""

    def __init__(self, inputs: int, outputs: int, *, groups: int = 1, as_buffer: bool) -> None:
        super().__init__(inputs, outputs, 3, groups=groups)
        mask = (torch.rand_like(self.weight) > 0.4).to(self.weight.dtype)
        if as_buffer:
            self.register_buffer("mask", mask)
        else:
            self.mask = nn.Parameter(mask, requires_grad=False)
        self.as_buffer = as_buffer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.mask * self.weight if self.as_buffer else self.weight.mul(self.mask)
        return F.conv2d(x, weight, self.bias, groups=self.groups)


@pytest.mark.parametrize("as_buffer", [False, True])
def test_the_mask_of_a_weight_loses_what_the_weight_loses(as_buffer: bool) -> None:
    model = nn.Sequential(
        *(Masked(3, 8, as_buffer=as_buffer), nn.ReLU()),
        *(Masked(8, 8, groups=8, as_buffer=as_buffer), nn.ReLU()),
        *(Masked(8, 4, groups=2, as_buffer=as_buffer), nn.ReLU()),
        Masked(4, 2, as_buffer=as_buffer),
    )
    result = halved(model, torch.rand(2, 3, 12, 12))
    # one of the two groups of the third layer goes, with half of everything before it
    shapes = [
        tuple(one.shape) for name, one in result.model.state_dict().items() if "mask" in name
    ]
    assert shapes == [(4, 3, 3, 3), (4, 1, 3, 3), (2, 4, 3, 3), (2, 2, 3, 3)]


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_weight_norm_lets_channels_go(norm: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(norm(nn.Linear(3, 6)), nn.ReLU(), norm(nn.Linear(6, 4)), nn.ReLU())
    model.append(nn.Linear(4, 2))
    channels = prunable_channels(model, torch.rand(2, 3))
    assert [one.size for one in channels.prunable] == [6, 4]
    with torch.no_grad():
        for module in (model[2], model[4]):
            named = dict(module.named_parameters())
            matrix = next(one for one in named.values() if one.dim() == 2 and one.shape[1] > 1)
            matrix[:, :2] = 0
    result = thin(model, torch.rand(2, 3))
    assert result.model[0].out_features == 4
    assert (result.model[2].in_features, result.model[2].out_features) == (4, 2)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize(
    ("norm", "length", "rows"),
    [
        (parametrizations.weight_norm, *[f"parametrizations.weight.original{n}" for n in (0, 1)]),
        (nn.utils.weight_norm, "weight_g", "weight_v"),
    ],
)
def test_masks_set_the_length_of_a_normed_row_to_zero(
    norm: Callable[[nn.Module], nn.Module], length: str, rows: str
) -> None:
    """A row of zeros divided by its length would be NaN, and with it every output."""
    layers = (norm(nn.Conv1d(3, 8, 3)), nn.ReLU(), norm(nn.Conv1d(8, 6, 3, groups=2)), nn.ReLU())
    model, x = nn.Sequential(*layers, nn.Conv1d(6, 2, 1)), torch.rand(2, 3, 9)
    channels = prunable_channels(model, x)
    weights = dict(model.named_parameters())
    keep = [torch.tensor([False, True])]  # of the two groups of the second layer
    masks = group_masks(channels, keep, weights)
    assert masks[f"0.{length}"].flatten().tolist() == 4 * [False] + 4 * [True]
    assert not masks.keys() & {f"0.{rows}", f"2.{rows}"}
    zero_groups(channels, keep, weights)
    assert model(x).isfinite().all()
    result = thin(model, x)
    assert (result.model[0].out_channels, result.model[2].groups) == (4, 1)


class Attention(nn.Module):
    """Attention whose code takes the width of heads from the width of its input."""

    def __init__(self, width: int, heads: int, named: bool) -> None:
        super().__init__()
        self.heads, self.named = heads, named
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        qkv = self.qkv(self.norm(x)).reshape(n, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if self.named:
            q = F.normalize(q, dim=-1)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c)
        return x + self.out(mixed)


@pytest.mark.parametrize("named", [False, True], ids=["scaled", "normalised"])
def test_heads_go_where_code_divides_the_width_by_their_number(named: bool) -> None:
    blocks = [Attention(12, 4, named) for _ in range(2)]
    model = nn.Sequential(nn.Linear(5, 12), *blocks, nn.Linear(12, 3))
    result = halved(model, torch.rand(2, 7, 5), living_norms=True)
    assert result.removed == {"0": (0, 1, 2, 3, 4, 5)}
    assert [block.heads for block in result.model[1:3]] == [2, 2]
    assert result.model[1].qkv.weight.shape == (18, 6)


def test_a_bias_of_several_parameters_follows_each() -> None:
    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 8, bias=False)
            self.one, self.other = (nn.Parameter(torch.rand(4)) for _ in range(2))
            self.last = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            bias = torch.cat((self.one, self.other))
            one, other = F.linear(x, self.first.weight, bias).chunk(2, dim=-1)
            return self.last(one * other)

    result = halved(Fused(), torch.rand(4, 3))
    assert (len(result.model.one), len(result.model.other)) == (2, 2)
    assert result.model.first.weight.shape == (4, 3)


def test_the_input_of_such_attention_keeps_its_width_under_plain_norms() -> None:
    model = nn.Sequential(nn.Linear(5, 12), Attention(12, 4, False), nn.Linear(12, 3))
    assert prunable_channels(model, torch.rand(2, 7, 5)).prunable == ()


class Recurrence(nn.Module):
    """A linear recurrence whose state has as many entries as channels of its input."""

    def __init__(self, inner: int, rank: int) -> None:
        super().__init__()
        self.inner, self.rank, self.size = inner, rank, 2
        self.first, self.rates = nn.Linear(3, inner), nn.Linear(inner, rank + 2)
        self.steps, self.last = nn.Linear(rank, inner), nn.Linear(inner, 2)
        self.decay = nn.Parameter(torch.rand(inner, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        rates, read = self.rates(x).split([self.rank, self.size], dim=-1)
        step = (self.steps.weight @ rates.transpose(1, 2)).transpose(1, 2)
        write = (step * x)[..., None] * read[:, :, None, :]
        state = x.new_zeros(len(x), x.shape[-1], self.size)
        outputs = []
        for moment in range(x.shape[1]):
            state = state * torch.exp(-self.decay) + write[:, moment]
            outputs.append(state.sum(-1))
        return self.last(torch.stack(outputs, dim=1))


def test_a_recurrence_in_code_loses_state_and_rank() -> None:
    result = halved(Recurrence(inner=6, rank=4), torch.rand(2, 5, 3))
    assert {name: len(gone) for name, gone in result.removed.items()} == {"first": 3, "rates": 2}
    assert result.model.rank == 2
    assert result.model.decay.shape == (3, 2)


class Experts(nn.Module):
    """Two experts in stacked weights, of which every row takes one."""

    def __init__(self, grouped: bool) -> None:
        super().__init__()
        self.grouped = grouped
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.up = nn.Parameter(torch.rand(2, 16, 8))
        self.down = nn.Parameter(torch.rand(2, 8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.grouped:
            stacked = x.reshape(2, -1, x.shape[-1])
            hidden = torch.bmm(torch.bmm(stacked, self.up.mT).relu(), self.down.mT)
            return self.last(hidden.flatten(0, 1))
        total = torch.zeros_like(x)
        for expert in range(2):
            rows = torch.arange(expert, len(x), 2)
            hidden = F.linear(F.linear(x[rows], self.up[expert]).relu(), self.down[expert])
            total.index_add_(0, rows, hidden)
        return self.last(total)


@pytest.mark.parametrize("grouped", [True, False], ids=["one product", "a loop"])
def test_stacked_weights_of_experts_lose_channels(grouped: bool) -> None:
    result = halved(Experts(grouped), torch.rand(4, 3))
    # the loop adds to zeros that are like its input, whose channels so are those of its output
    assert result.removed.keys() - {"down"} == {"first", "up"}
    assert ("down" in result.removed) == grouped
    assert result.model.up.shape == (2, 8, 4)
    assert result.model.down.shape == (2, 4, 8)


def test_of_an_outer_product_the_longer_axis_loses_channels() -> None:
    def outer() -> Function:
        def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
            pairs = m.long(x)[:, :, None] * m.short(x)[:, None, :]
            return m.last(pairs.sum(-1))

        return Function(forward, long=nn.Linear(3, 8), short=nn.Linear(3, 2), last=nn.Linear(8, 2))

    channels = prunable_channels(outer(), torch.rand(4, 3))
    assert {one.name: one.size for one in channels.prunable} == {"long": 8}
    assert "broadcasts it over other channels" in channels.fixed["short"]
    halved(outer(), torch.rand(4, 3))


def test_a_state_of_a_given_width_falls_with_the_channels_that_it_meets() -> None:
    class Memory(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width
            self.first, self.last = nn.Linear(3, width), nn.Linear(2 * width, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(len(x), self.width, dtype=x.dtype)
            return self.last(torch.cat([state + self.first(x), self.first(x)], dim=1))

    result = halved(Memory(6), torch.rand(4, 3))
    assert result.model.width == 3


def test_rows_picked_by_an_index_from_the_input_keep_channels_apart() -> None:
    def forward(m: Function, tokens: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(len(tokens))
        return m.last(m.table(tokens)[rows, tokens.argmax(-1)])

    model = Function(forward, table=nn.Embedding(9, 6), last=nn.Linear(6, 2))
    tokens = torch.randint(0, 9, (3, 5), generator=torch.Generator().manual_seed(0))
    assert halved(model, tokens).removed == {"table": (0, 1, 2)}


def test_positions_that_are_resized_follow_the_channels() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 2, 1)
            self.places = nn.Parameter(torch.rand(1, 16, 6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = self.places.reshape(1, 4, 4, -1).permute(0, 3, 1, 2)
            return self.last(self.first(x) + F.interpolate(places, size=(8, 8), mode="bilinear"))

    result = halved(Positions(), torch.rand(2, 3, 8, 8))
    assert result.model.places.shape == (1, 16, 3)


def test_a_width_computed_in_another_way_still_fails_the_trial_and_is_fixed() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        hidden = m.first(x)
        side = math.isqrt(16)
        return m.last(hidden.reshape(-1, side, side).flatten(1))

    model = Function(forward, first=nn.Linear(3, 16), last=nn.Linear(16, 2))
    assert "holds a width" in prunable_channels(model, torch.rand(4, 3)).fixed["first"]


def test_norms_behind_an_attention_that_averages_its_weights_see_living_channels() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.attention = nn.Linear(3, 8), nn.MultiheadAttention(8, 2)
            self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return self.last(self.norm(self.attention(x, x, x)[0]))

    result = halved(Pooled(), torch.rand(4, 5, 3), living_norms=True)
    assert len(result.removed["attention.out_proj"]) == 4
