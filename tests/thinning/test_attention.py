"""Heads, shuffles, splits and recurrent units, each worked out by hand."""

from collections.abc import Callable

import pytest
import torch
from einops import rearrange
from einops.layers.torch import Rearrange
from torch import nn
from torch.nn import functional as F

from nncfx.channels import analyze_channels
from nncfx.thinning import prunable_channels, thin
from small_models import Function

TOKENS = torch.linspace(-1, 1, 2 * 5 * 8, dtype=torch.float64).reshape(2, 5, 8)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 6 * 6, dtype=torch.float64).reshape(2, 3, 6, 6)


class Fused(nn.Module):
    """Attention with one projection for queries, keys and values; 4 heads of 3."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim = 4, 3
        self.qkv = nn.Linear(8, 36)
        self.proj = nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-2, -1) * self.head_dim**-0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(n, tokens, -1))


class Separate(nn.Module):
    """Attention with three projections; `heads` heads of 2 for queries, `shared` for the rest."""

    def __init__(self, heads: int, shared: int) -> None:
        super().__init__()
        self.width = 2
        self.groups = heads // shared
        self.q = nn.Linear(8, 2 * heads)
        self.k = nn.Linear(8, 2 * shared)
        self.v = nn.Linear(8, 2 * shared)
        self.out = nn.Linear(2 * heads, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.groups > 1)
        return self.out(y.transpose(1, 2).flatten(2))


class Rearranged(nn.Module):
    """Attention of 4 heads of 3 whose code lays out heads by einops, as vit-pytorch does."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.qkv = nn.Linear(8, 36)
        self.proj = nn.Linear(12, 8)

    def laid_out(self, x: torch.Tensor) -> torch.Tensor:
        return rearrange(x, "b n (h d) -> b h n d", h=self.heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = map(self.laid_out, self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) * 3**-0.5).softmax(-1)
        return self.proj(self.joined(weights @ v))

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        return rearrange(x, "b h n d -> b n (h d)")


class Fixed(Rearranged):
    """The number of heads stands in the code; their width is what is left."""

    def laid_out(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 5, 4, -1).transpose(1, 2)

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).flatten(2)


class FixedByEinops(Rearranged):
    """The number of heads stands in a layer of einops, as in MONAI."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Rearrange("b n (h d) -> b h n d", h=4)

    def laid_out(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return build().double().eval()


@pytest.mark.parametrize("name", ["Fused", "MultiheadAttention"])  # the latter as torch's own
def test_a_head_of_a_fused_projection_goes_with_its_rows_of_all_three(name: str) -> None:
    model = seeded(type(name, (Fused,), {}))
    model.proj.weight.data[:, 3:6] = 0
    before = model(TOKENS)
    result = thin(model, TOKENS)
    assert result.entries["qkv.weight", 0] == (*range(3, 6), *range(15, 18), *range(27, 30))
    assert (result.model.num_heads, result.model.head_dim) == (3, 3)
    assert result.max_error <= 1e-12
    torch.testing.assert_close(result.model(TOKENS), before)


def test_half_a_head_stays() -> None:
    model = seeded(Fused)
    model.proj.weight.data[:, 3:5] = 0
    assert thin(model, TOKENS).removed == {}


def test_heads_that_einops_lays_out_go_also_where_its_cache_knows_the_sizes() -> None:
    model = seeded(Rearranged)
    model.proj.weight.data[:, 3:6] = 0
    before = model(TOKENS)  # from now on einops knows what these sizes give
    result = thin(model, TOKENS)
    assert result.entries["qkv.weight", 0] == (*range(3, 6), *range(15, 18), *range(27, 30))
    assert result.model.heads == 3
    torch.testing.assert_close(result.model(TOKENS), before)
    model(TOKENS)
    sizes = rearrange(TOKENS, "b n (h d) -> b h n d", h=4).shape
    assert {type(one) for one in sizes} == {int}  # none with a name is left in its cache


@pytest.mark.parametrize("build", [Fixed, FixedByEinops])
def test_no_head_goes_where_code_would_divide_the_rest_by_their_number(
    build: Callable[[], nn.Module],
) -> None:
    model = seeded(build)
    model.proj.weight.data[:, 3:6] = 0
    assert thin(model, TOKENS, form="class").removed == {}
    qkv = next(one for one in prunable_channels(model, TOKENS) if one.name == "qkv")
    assert qkv.fixed is not None
    assert "would divide what is left by the number in its code" in qkv.fixed


def test_a_number_of_heads_in_the_code_falls_in_a_graph() -> None:
    model = seeded(Fixed)
    model.proj.weight.data[:, 3:6] = 0
    result = thin(model, TOKENS)
    assert result.exchanged.keys() == {""}
    assert result.entries["proj.weight", 1] == (3, 4, 5)
    torch.testing.assert_close(result.model(TOKENS), model(TOKENS))


def test_heads_of_separate_projections_are_groups_of_their_rows() -> None:
    found = analyze_channels(seeded(lambda: Separate(4, 4)), TOKENS).find("q")
    assert found.size == 4
    rows = {m.parameter: m.indices.tolist() for m in found.members if m.axis == 0}
    assert rows.keys() == {f"{layer}.{part}" for layer in "qkv" for part in ("weight", "bias")}
    assert all(heads == [[0, 1], [2, 3], [4, 5], [6, 7]] for heads in rows.values())


def test_queries_that_share_a_key_go_together() -> None:
    model = seeded(lambda: Separate(6, 2))
    model.out.weight.data[:, :6] = 0
    result = thin(model, TOKENS)
    assert (result.model.q.out_features, result.model.k.out_features) == (6, 2)
    assert result.max_error <= 1e-12


def test_a_query_alone_stays_where_its_key_is_shared() -> None:
    model = seeded(lambda: Separate(6, 2))
    model.out.weight.data[:, :2] = 0
    assert thin(model, TOKENS).removed == {}


def torch_net(*, returns_weights: bool = False) -> Function:
    """Attention of PyTorch; asks for the mean weights, as its default is, and may return them."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        result, weights = m.inner(x, x, x)
        return weights if returns_weights else result

    return Function(forward, inner=nn.MultiheadAttention(8, 4, batch_first=True))


def test_heads_of_torchs_attention_go_with_their_rows_of_all_three_and_its_class_is_told() -> None:
    model = seeded(torch_net)
    model.inner.out_proj.weight.data[:, 2:4] = 0
    result = thin(model, TOKENS)
    assert result.entries["inner.in_proj_weight", 0] == (2, 3, 10, 11, 18, 19)
    assert result.model.inner.num_heads == 3
    assert result.max_error <= 1e-12
    assert result.exchanged == {"inner": "NarrowAttention"}
    assert "'inner' is now a NarrowAttention." in str(result)


def test_no_head_goes_whose_weights_are_returned() -> None:
    channels = prunable_channels(seeded(lambda: torch_net(returns_weights=True)), TOKENS)
    assert "averages over all heads" in channels.fixed["inner"]


def test_the_only_head_stays() -> None:
    model = seeded(torch_net)
    model.inner.num_heads, model.inner.head_dim = 1, 8
    assert prunable_channels(model, TOKENS).prunable == ()


def test_encoder_layers_of_torch_lose_heads_and_hidden_units() -> None:
    model = seeded(lambda: nn.TransformerEncoderLayer(8, 4, 12, batch_first=True))
    model.self_attn.out_proj.weight.data[:, :2] = 0
    model.linear2.weight.data[:, 5] = 0
    result = thin(model, TOKENS)
    assert (result.model.self_attn.num_heads, result.model.linear1.out_features) == (3, 11)
    assert result.max_error <= 1e-12


@pytest.mark.parametrize("kind", ["self", "memory", "three"])
def test_decoders_of_torch_lose_heads(kind: str) -> None:
    def decoder() -> Function:
        def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
            key = x if kind == "self" else m.keys(x)
            value = x.relu() if kind == "three" else key
            return m.inner(x, key, value, need_weights=False)[0]

        return Function(forward, inner=nn.MultiheadAttention(8, 4), keys=nn.Linear(8, 8))

    model = seeded(decoder)
    model.inner.out_proj.weight.data[:, 6:] = 0
    result = thin(model, TOKENS)
    assert result.model.inner.num_heads == 3
    assert result.max_error <= 1e-12


@pytest.mark.parametrize(("layer", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2}])
def test_hidden_units_go_with_a_row_of_each_gate(
    layer: type[nn.RNNBase], gates: int, options: dict[str, int]
) -> None:
    def model_net() -> Function:
        return Function(
            lambda m, x: m.head(m.cell(x)[0]),
            cell=layer(8, 6, batch_first=True, **options),
            head=nn.Linear(12 if "bidirectional" in options else 6, 2),
        )

    model = seeded(model_net)
    for name, weight in model.named_parameters():
        if "weight_hh" in name or name in {"head.weight", "cell.weight_ih_l1"}:
            weight.data[:, 1::6] = 0
    result = thin(model, TOKENS)
    assert result.entries["cell.weight_hh_l0", 0] == tuple(6 * gate + 1 for gate in range(gates))
    assert result.model.cell.hidden_size == 5
    assert result.max_error <= 1e-12


class Images(nn.Module):
    def __init__(self, middle: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.middle = middle
        self.parts, self.width = 2, 4
        self.stem = nn.Conv2d(3, 8, 1)
        self.norm = nn.GroupNorm(4, 8)
        self.head = nn.Conv2d(8, 2, 1)
        self.after = nn.Conv2d(4, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self, self.stem(x)))


def shuffle(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    n, channels, *pixels = x.shape
    x = x.view(n, model.parts, channels // model.parts, *pixels)
    return x.transpose(1, 2).reshape(n, channels, *pixels)


def test_a_shuffle_keeps_as_many_channels_in_each_part() -> None:
    model = seeded(lambda: Images(shuffle))
    model.head.weight.data[:, :2] = 0  # after the shuffle: channel 0 of both parts
    result = thin(model, IMAGE)
    assert result.removed == {"stem": (0, 4)}
    assert result.max_error <= 1e-12


def test_channels_of_a_group_norm_go_by_groups() -> None:
    model = seeded(lambda: Images(lambda m, x: m.norm(x)))
    model.head.weight.data[:, 2:4] = 0
    result = thin(model, IMAGE)
    assert result.removed == {"stem": (2, 3)}
    assert (result.model.norm.num_groups, result.model.norm.num_channels) == (3, 6)
    assert result.max_error <= 1e-12


def test_a_width_that_a_split_is_given_falls() -> None:
    def middle(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        first, second = x.split(model.width, dim=1)
        return model.after(F.relu(first) * second)

    model = seeded(lambda: Images(middle))
    model.after.weight.data[:, 1] = 0
    result = thin(model, IMAGE)
    assert result.removed["stem"] == (1, 5)
    assert result.model.width == 3
    assert result.max_error <= 1e-12


@pytest.mark.parametrize("transposed", [True, False])
def test_a_parameter_as_a_matrix_is_a_layer(*, transposed: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Parameter(torch.randn(6, 8) if transposed else torch.randn(8, 6))
            self.bias = nn.Parameter(torch.randn(5))
            self.last = nn.Parameter(torch.randn(6, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(x.flatten(0, 1) @ (self.first.T if transposed else self.first))
            return torch.addmm(self.bias, y, self.last)

    model = seeded(Model)
    model.last.data[2] = 0
    result = thin(model, TOKENS)
    assert result.entries == {("first", 0 if transposed else 1): (2,), ("last", 0): (2,)}
