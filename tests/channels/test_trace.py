"""Worked examples: which channels of small models go together, found by hand."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.nn import functional as F

from nncfx.channels.trace import analyze_channels
from nncfx.errors import GraphError, TracingError
from nncfx.graph.channels import Channels, Role
from nncfx.network import wrap
from nncfx.tracing import WeightSite
from nncfx.tracing.hooks.sites import Insertion
from small_models import Function

IMAGE = torch.zeros(2, 3, 6, 6)


def conv(inputs: int, outputs: int, **kwargs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, **kwargs)


def members(channels: Channels, name: str) -> dict[str, list[list[int]]]:
    """Return 'parameter:axis' to the entries of each group."""
    group_set = channels.find(name)
    return {f"{m.parameter}:{m.axis}": m.indices.tolist() for m in group_set.members}


def own(count: int, start: int = 0) -> list[list[int]]:
    return [[index] for index in range(start, start + count)]


def test_in_a_chain_rows_norm_and_the_next_columns_go_together() -> None:
    model = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU(), conv(4, 5))
    found = analyze_channels(model, IMAGE)
    assert members(found, "0") == {
        "0.weight:0": own(4),
        "0.bias:0": own(4),
        "1.running_mean:0": own(4),
        "1.running_var:0": own(4),
        "1.weight:0": own(4),
        "1.bias:0": own(4),
        "3.weight:1": own(4),
    }


def test_each_member_has_its_role() -> None:
    model = nn.Sequential(conv(3, 4), nn.PReLU(4), conv(4, 5))
    roles = {m.parameter: m.role for m in analyze_channels(model, IMAGE).find("0").members}
    assert roles == {
        "0.weight": Role.PRODUCER,
        "0.bias": Role.PRODUCER,
        "1.weight": Role.FOLLOWER,
        "2.weight": Role.CONSUMER,
    }


def test_buffers_are_marked() -> None:
    model = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), conv(4, 5))
    found = analyze_channels(model, IMAGE).find("0")
    assert {m.parameter for m in found.members if m.is_buffer} == {
        "1.running_mean",
        "1.running_var",
    }


def test_outputs_of_the_model_are_fixed() -> None:
    found = analyze_channels(nn.Sequential(conv(3, 4), conv(4, 5)), IMAGE)
    assert dict(found.fixed) == {"1": "an output of the model"}


def test_inputs_of_the_model_are_no_group_of_their_own() -> None:
    assert [group_set.name for group_set in analyze_channels(conv(3, 4), IMAGE)] == ["weight"]


def test_a_residual_sum_ties_its_branches() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        stem = m.stem(x)
        return m.head(stem + m.second(m.first(stem)))

    model = Function(
        forward, stem=conv(3, 4), first=conv(4, 2), second=conv(2, 4), head=conv(4, 1)
    )
    found = analyze_channels(model, IMAGE)
    assert [group_set.name for group_set in found.prunable] == ["stem", "first"]
    assert members(found, "stem") == {
        "stem.weight:0": own(4),
        "stem.bias:0": own(4),
        "first.weight:1": own(4),
        "second.weight:0": own(4),
        "second.bias:0": own(4),
        "head.weight:1": own(4),
    }


def test_a_concatenation_shifts_the_columns_of_its_readers() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return m.head(m.norm(torch.cat([m.a(x), m.b(x)], 1)))

    model = Function(
        forward, a=conv(3, 2), b=conv(3, 4), norm=nn.BatchNorm2d(6, affine=False), head=conv(6, 1)
    )
    found = analyze_channels(model, IMAGE)
    assert members(found, "a")["head.weight:1"] == own(2)
    assert members(found, "b") == {
        "b.weight:0": own(4),
        "b.bias:0": own(4),
        "norm.running_mean:0": own(4, 2),
        "norm.running_var:0": own(4, 2),
        "head.weight:1": own(4, 2),
    }


def test_a_concatenation_of_concatenations_shifts_twice() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        a = m.a(x)
        inner = torch.cat([a, m.b(x)], 1)
        return m.head(torch.cat([inner, a], 1))

    model = Function(forward, a=conv(3, 2), b=conv(3, 3), head=conv(7, 1))
    found = analyze_channels(model, IMAGE)
    assert members(found, "a")["head.weight:1"] == [[0, 5], [1, 6]]
    assert members(found, "b")["head.weight:1"] == own(3, 2)


def test_after_a_flatten_a_channel_has_one_column_per_pixel() -> None:
    model = nn.Sequential(conv(3, 2), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, 5))
    found = analyze_channels(model, IMAGE)
    assert members(found, "0")["3.weight:1"] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_depthwise_convolution_follows() -> None:
    model = nn.Sequential(conv(3, 4), conv(4, 8, groups=4), conv(8, 1))
    found = analyze_channels(model, IMAGE)
    pairs = [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert members(found, "0") == {
        "0.weight:0": own(4),
        "0.bias:0": own(4),
        "1.weight:0": pairs,
        "1.bias:0": pairs,
        "2.weight:1": pairs,
    }


def test_channels_of_one_group_of_a_convolution_go_together() -> None:
    model = nn.Sequential(conv(3, 4), conv(4, 6, groups=2), conv(6, 1))
    found = analyze_channels(model, IMAGE)
    assert members(found, "0") == {
        "0.weight:0": [[0, 1], [2, 3]],
        "0.bias:0": [[0, 1], [2, 3]],
        "1.weight:0": [[0, 1, 2], [3, 4, 5]],
        "1.bias:0": [[0, 1, 2], [3, 4, 5]],
        "2.weight:1": [[0, 1, 2], [3, 4, 5]],
    }


def test_squeeze_and_excite_ties_gate_and_features_only() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = m.stem(x)
        gate = m.expand(F.relu(m.squeeze(x.mean((2, 3)))))
        return m.head(x * torch.sigmoid(gate)[:, :, None, None])

    model = Function(
        forward, stem=conv(3, 4), squeeze=nn.Linear(4, 2), expand=nn.Linear(2, 4), head=conv(4, 1)
    )
    found = analyze_channels(model, IMAGE)
    assert [(g.name, g.size) for g in found.prunable] == [("stem", 4), ("squeeze", 2)]
    assert members(found, "stem")["expand.weight:0"] == own(4)


def test_of_a_padded_shortcut_only_the_padding_is_fixed() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = m.stem(x)
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))
        return m.head(shortcut + m.second(m.first(x)))

    model = Function(
        forward, stem=conv(3, 2), first=conv(2, 3, stride=2), second=conv(3, 4), head=conv(4, 1)
    )
    found = analyze_channels(model, IMAGE)
    assert [(g.name, g.size) for g in found.prunable] == [("stem", 2), ("first", 3)]
    assert members(found, "stem")["second.weight:0"] == own(2, 1)
    assert members(found, "second")["second.weight:0"] == [[0], [3]]
    assert found.fixed["second"] == (
        "a constant of the model's code takes the place of such a channel at 'Function/__add___0'"
    )


def test_a_module_called_twice_ties_what_it_reads_and_writes() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return m.head(m.shared(m.shared(m.stem(x))))

    model = Function(forward, stem=conv(3, 4), shared=conv(4, 4), head=conv(4, 1))
    found = analyze_channels(model, IMAGE)
    assert members(found, "stem") == {
        "stem.weight:0": own(4),
        "stem.bias:0": own(4),
        "shared.weight:1": own(4),
        "shared.weight:0": own(4),
        "shared.bias:0": own(4),
        "head.weight:1": own(4),
    }


def test_unequal_carriers_make_sets_of_their_own() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        wide = m.wide(x)
        return m.head(torch.cat([wide, m.narrow(x) + F.pad(wide, (0, 0, 0, 0, 0, 2))], 1))

    model = Function(forward, wide=conv(3, 2), narrow=conv(3, 4), head=conv(6, 1))
    found = analyze_channels(model, IMAGE)
    assert [(g.name, g.size, g.fixed is None) for g in found][:2] == [
        ("wide", 2, True),
        ("narrow", 2, False),
    ]


def test_an_operation_that_is_not_followed_fixes_what_it_reads_and_is_named() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return m.head(torch.fft.fft(m.stem(x)).real)

    found = analyze_channels(Function(forward, stem=conv(3, 4), head=conv(4, 1)), IMAGE)
    assert found.fixed["stem"] == "'Function/fft_fft_0' is not followed"


def test_a_parameter_that_is_computed_with_is_fixed() -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        weight = m.stem.weight
        standard = (weight - weight.mean()) / weight.std()
        return m.head(F.conv2d(x, standard))

    model = Function(forward, stem=conv(3, 4), head=conv(4, 1))
    assert analyze_channels(model, IMAGE).prunable == ()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda weight: weight.sign() * 0.5, None),
        (lambda weight: weight.tanh().clamp(-0.5, 0.5), None),
        (lambda weight: weight * torch.ones(1), None),
        (
            lambda weight: torch.where(weight >= 0, 1.0, -1.0),
            "'Function/__ge___0' turns the zeros of 'head.weight' into other numbers",
        ),
        (
            lambda weight: torch.where(weight > 0, 1.0, -1.0),
            "'Function/where_0' turns the zeros of 'head.weight' into other numbers",
        ),
    ],
    ids=["sign", "clamp", "constant", "binary", "binary of positive"],
)
def test_a_weight_read_by_a_function_lets_channels_go_that_keeps_zeros(
    changed: Callable[[torch.Tensor], torch.Tensor], reason: str | None
) -> None:
    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(m.stem(x), changed(m.head.weight))

    model = Function(forward, stem=conv(3, 4), head=conv(4, 1))
    assert analyze_channels(model, IMAGE).find("stem").fixed == reason


def test_analysis_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    analyze_channels(model, IMAGE)
    assert all(torch.equal(before[name], new) for name, new in model.state_dict().items())
    assert all(module.training for module in model.modules())


def test_hooks_of_a_wrapped_model_are_looked_through() -> None:
    model = wrap(nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 5)), IMAGE)
    expected = str(analyze_channels(model, IMAGE))
    site = WeightSite(module="0", name="weight")
    model.nncf.register([Insertion(site=site, hook=nn.Tanh(), priority=0, algorithm="test")])
    model.nncf.commit()
    assert str(analyze_channels(model, IMAGE)) == expected
    assert len(model.nncf.hooks) == 1


def test_analysing_twice_finds_the_same() -> None:
    model = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), conv(4, 4), nn.Flatten())
    assert str(analyze_channels(model, IMAGE)) == str(analyze_channels(model, IMAGE))


class Asking(nn.Module):
    """Computes one thing in training, and another in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).relu() if self.training else self.stem(x))


def test_each_mode_runs_once_where_code_asks_for_it() -> None:
    model, seen = Asking(), []
    model.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    analyze_channels(model, torch.zeros(2, 3))
    assert seen == [False, True]


class Experts(nn.Module):
    """Tokens go to the expert that the first of their entries names."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.up, self.down = (
            nn.ModuleList(nn.Linear(*one) for _ in range(2)) for one in ((4, 5), (5, 4))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        expert = x[:, 0].long()
        x = self.stem(x)
        for index in range(2):
            rows = (expert == index).nonzero()[:, 0]
            x = x.index_add(0, rows, self.down[index](self.up[index](x[rows]).relu()))
        return self.head(x)


def test_an_expert_that_no_token_goes_to_is_told() -> None:
    tokens = torch.eye(3)  # the first goes to expert 1
    every = analyze_channels(Experts(), tokens)
    assert {one.name: one.size for one in every.prunable} == {"stem": 4, "up.0": 5, "up.1": 5}
    with pytest.raises(TracingError, match=r"Linear\[0\]/linear_0' reads nothing .* no token"):
        analyze_channels(Experts(), tokens[:1])


def test_what_stacks_no_matches_is_followed_no_further() -> None:
    def forward(m: Function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = m.head(m.stem(x))
        index = torch.where(y[0] > torch.inf)[0]
        return y, torch.stack([index, index], -1)

    model = Function(forward, stem=nn.Linear(3, 4), head=nn.Linear(4, 2))
    assert analyze_channels(model, torch.zeros(2, 3)).find("stem").fixed is None


def test_what_torchs_function_transforms_call_is_refused() -> None:
    def forward(self: Function, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.jacrev(self.inner))(x)

    model = Function(forward, inner=nn.Linear(3, 4))
    with pytest.raises(GraphError, match=r"inner\]/linear_0' is called by .*autograd\.grad"):
        analyze_channels(model, torch.randn(2, 3))


def test_masks_that_vmap_makes_from_inputs_are_constants() -> None:
    """Transformers make masks of attention so."""

    def forward(self: Function, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        def is_visible(row: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
            return mask[row, query] & (query > 0)

        rows, queries = (torch.arange(size) for size in mask.shape)
        with TransformGetItemToIndex():
            columns = torch.func.vmap(is_visible, in_dims=(None, 0))
            visible = torch.func.vmap(columns, in_dims=(0, None))(rows, queries)
        return self.head(self.stem(x).relu() * visible[..., None])

    model = Function(forward, stem=nn.Linear(3, 4), head=nn.Linear(4, 2))
    inputs = (torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool))
    assert {one.name: one.size for one in analyze_channels(model, inputs).prunable} == {"stem": 4}
