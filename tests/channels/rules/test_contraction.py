"""Contractions read channels and create new ones, along the axes of their weights."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Channels
from nncfx.thinning import thin
from small_models import Function


def axes(channels: Channels, name: str) -> dict[str, tuple[str, int]]:
    return {m.parameter: (str(m.role), m.axis) for m in channels.find(name).members}


@pytest.mark.parametrize(("kind", "dims"), [(nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3)])
@pytest.mark.parametrize("batch", [(2,), ()], ids=["batch", "single"])
def test_a_convolution_reads_columns_and_writes_rows(
    kind: type[nn.Module], dims: int, batch: tuple[int, ...]
) -> None:
    model = nn.Sequential(kind(3, 4, 1), kind(4, 2, 1, bias=False))
    found = analyze_channels(model, torch.zeros(*batch, 3, *[5] * dims))
    assert axes(found, "0") == {
        "0.weight": ("producer", 0),
        "0.bias": ("producer", 0),
        "1.weight": ("consumer", 1),
    }


@pytest.mark.parametrize(
    ("kernel", "settings", "is_free"),
    [
        (1, {}, True),
        (1, {"stride": 2}, False),
        (1, {"padding": 1}, False),
        (3, {}, False),
        (3, {"padding": 1}, False),
        (1, {"stride": 2, "padding": 3}, False),
    ],
    ids=["single pixels", "stride", "padding", "windows", "windows of all", "stride of all"],
)
def test_a_convolution_over_tokens_lets_channels_pass_if_it_reads_them_one_by_one(
    kernel: int, settings: dict[str, int], is_free: bool
) -> None:
    """The 6 channels lie along the axis of pixels, 4 tokens along that of channels."""
    model = nn.Sequential(nn.Linear(3, 6), nn.Conv1d(4, 2, kernel, **settings))
    width = model(torch.zeros(2, 4, 3)).shape[-1]
    found = analyze_channels(model.append(nn.Linear(width, 2)), torch.zeros(2, 4, 3))
    assert (found.find("0").fixed is None) == is_free
    if is_free:
        assert axes(found, "0")["2.weight"] == ("consumer", 1)


def test_a_transposed_convolution_has_its_axes_swapped() -> None:
    model = nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.ConvTranspose2d(4, 2, 2))
    found = analyze_channels(model, torch.zeros(1, 3, 5, 5))
    assert axes(found, "0") == {
        "0.weight": ("producer", 1),
        "0.bias": ("producer", 0),
        "1.weight": ("consumer", 0),
    }


def test_a_grouped_transposed_convolution_ties_by_group() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.ConvTranspose2d(4, 6, 2, groups=2), nn.Conv2d(6, 1, 1)
    )
    found = analyze_channels(model, torch.zeros(1, 3, 5, 5)).find("0")
    assert {(m.parameter, m.axis): m.indices.tolist() for m in found.members} == {
        ("0.weight", 0): [[0, 1], [2, 3]],
        ("0.bias", 0): [[0, 1], [2, 3]],
        ("1.weight", 0): [[0, 1], [2, 3]],
        ("1.bias", 0): [[0, 1, 2], [3, 4, 5]],
        ("2.weight", 1): [[0, 1, 2], [3, 4, 5]],
    }


def test_a_linear_layer_reads_the_last_axis_of_any_shape() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    found = analyze_channels(model, torch.zeros(2, 7, 3))
    assert axes(found, "0") == {
        "0.weight": ("producer", 0),
        "0.bias": ("producer", 0),
        "2.weight": ("consumer", 1),
    }


def test_a_depthwise_convolution_of_the_image_is_fixed() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1, groups=3), nn.Conv2d(6, 2, 1))
    found = analyze_channels(model, torch.zeros(1, 3, 5, 5))
    assert found.fixed["0"] == "an input of the model"


def test_columns_of_an_embedding_are_channels() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    found = analyze_channels(model, torch.zeros(1, 3, dtype=torch.int64))
    assert axes(found, "0") == {"0.weight": ("producer", 1), "1.weight": ("consumer", 1)}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_columns_of_an_embedding_bag_are_channels(mode: str) -> None:
    model = nn.Sequential(nn.EmbeddingBag(10, 4, mode=mode), nn.Linear(4, 2))
    rows = torch.tensor([[0, 1, 2], [3, 4, 9]])
    found = analyze_channels(model, rows)
    assert axes(found, "0") == {"0.weight": ("producer", 1), "1.weight": ("consumer", 1)}
    with torch.no_grad():
        model[1].weight[:, 1] = 0
    thinned = thin(model, rows).model
    assert thinned[0].embedding_dim == 3
    torch.testing.assert_close(thinned(rows), model(rows))


def test_channels_that_weigh_the_entries_of_bags_stay() -> None:
    model = Function(
        lambda m, x: m.bags(torch.ones(2, 4, dtype=torch.long), per_sample_weights=m.stem(x)),
        stem=nn.Linear(3, 4),
        bags=nn.EmbeddingBag(10, 5, mode="sum"),
    )
    found = analyze_channels(model, torch.zeros(2, 3))
    assert "reads it as an index or as the weight of one" in found.fixed["stem"]


def test_mm_reads_and_writes_as_matmul_does() -> None:
    def product_net(product: Callable[..., torch.Tensor]) -> Function:
        return Function(
            lambda m, x: m.head(product(m.stem(x), m.matrix)),
            stem=nn.Linear(3, 4),
            head=nn.Linear(5, 2),
            matrix=nn.Parameter(torch.ones(4, 5)),
        )

    for product in (torch.mm, torch.Tensor.mm, torch.matmul, torch.linalg.matmul):
        found = analyze_channels(product_net(product), torch.zeros(2, 3))
        assert axes(found, "stem")["matrix"] == ("consumer", 0)
        assert axes(found, "matrix") == {"matrix": ("producer", 1), "head.weight": ("consumer", 1)}


def test_a_tied_embedding_reads_and_writes_the_same_columns() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.ReLU(), nn.Linear(4, 10, bias=False))
    model[2].weight = model[0].weight
    found = analyze_channels(model, torch.zeros(1, 3, dtype=torch.int64))
    roles = [(m.parameter, str(m.role), m.axis) for m in found.find("0").members]
    assert roles == [("0.weight", "producer", 1), ("0.weight", "consumer", 1)]
    assert found.find("0").size == 4


class Used(nn.Module):
    """A linear layer of 4 channels, code that uses parameters, and a linear layer."""

    def __init__(self, code: Callable[["Used", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.matrix, self.vector = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4))
        self.stack = nn.Parameter(torch.ones(2, 4, 4))
        self.grouped = nn.Parameter(torch.ones(4, 2, 1))
        self.kernel = nn.Parameter(torch.ones(4, 4, 1))
        self.code = code
        self.head = nn.LazyLinear(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.code(self, self.stem(x)))


def analyse(code: Callable[[Used, torch.Tensor], torch.Tensor]) -> Channels:
    """Analyse code on 4 tokens of 4 channels."""
    model, x = Used(code), torch.zeros(2, 4, 3)
    model(x)
    return analyze_channels(model, x)


NO_WEIGHT = "has a weight that is not a parameter"
NEITHER = "has a weight or a bias that is not a parameter"
SEVERAL = "reads channels from several axes"
UNKNOWN: dict[str, tuple[Callable[[Used, torch.Tensor], torch.Tensor], dict[str, str]]] = {
    "index": (
        lambda m, x: F.embedding((x > 0).long(), m.matrix),
        {"stem": "reads it as an index"},
    ),
    "matrix of a stack, and a bias": (
        lambda m, x: F.linear(x, m.stack[1], m.vector),
        {"stem": NO_WEIGHT},
    ),
    "sum with a transposed weight": (
        lambda m, x: torch.addmm(m.vector, x[0], m.matrix.t())[None],
        {"stem": NEITHER},
    ),
    "sum with a flipped bias": (
        lambda m, x: torch.addmm(m.vector.flip(0), x[0], m.matrix)[None],
        {"stem": NEITHER},
    ),
    "block, transposed": (
        lambda m, x: F.conv_transpose1d(x.mT, m.kernel[:, :2]),
        {"stem": NO_WEIGHT},
    ),
    "block of groups": (
        lambda m, x: F.conv1d(x.mT, m.kernel[:, :2], groups=2),
        {"stem": NO_WEIGHT},
    ),
    "flipped bias": (
        lambda m, x: F.linear(x, m.matrix, m.vector.flip(0)),
        {"matrix": "a constant of the model's code takes the place of such a channel"},
    ),
    "bias of each token": (
        lambda m, x: F.linear(x, m.matrix, m.kernel[..., 0]),
        {"matrix": "a constant of the model's code takes the place of such a channel"},
    ),
    "bias that is a matrix": (
        lambda m, x: F.linear(x, m.matrix, m.matrix),
        {
            "stem": "has a bias that is not a parameter",
            "matrix": "a constant of the model's code takes the place of such a channel",
        },
    ),
    "groups of tokens": (
        lambda m, x: F.conv1d(x, m.grouped, stride=2, groups=2),
        {"stem": SEVERAL, "grouped": SEVERAL},
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_no_product_with_a_parameter_keeps_the_channels_that_it_reads(name: str) -> None:
    code, reasons = UNKNOWN[name]
    fixed = analyse(code).fixed
    assert fixed.keys() - {"head"} == set(reasons)
    assert all(reason in fixed[one] for one, reason in reasons.items())


def test_a_product_along_pixels_keeps_channels_apart() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Linear(6, 5), nn.Conv2d(4, 2, 1))
    found = analyze_channels(model, torch.zeros(1, 3, 6, 6))
    assert axes(found, "0")["2.weight"] == ("consumer", 1)


def test_a_table_whose_rows_are_channels_is_not_looked_up() -> None:
    """An embedding of a transposed table makes no channels; what it is added to must stay."""
    tokens = torch.zeros(2, 4, dtype=torch.int64)
    found = analyse(lambda m, x: x + F.embedding(tokens, m.matrix.t()))
    assert found.fixed["stem"] == "'Used/embedding_0' is not followed"


def test_a_sum_that_is_written_to_a_buffer_is_one() -> None:
    class Written(Used):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return super().forward(x)

    model = Written(lambda m, x: torch.addmm(m.vector, x[0], m.matrix, out=torch.empty(4, 4)))
    model(torch.zeros(1, 4, 3))
    found = analyze_channels(model, torch.zeros(1, 4, 3))
    assert axes(found, "stem")["matrix"] == ("consumer", 0)
    assert axes(found, "matrix")["head.weight"] == ("consumer", 1)


def test_a_convolution_with_as_many_outputs_as_inputs_makes_channels_of_its_own() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1))
    found = analyze_channels(model, torch.zeros(1, 3, 5, 5))
    assert [one.name for one in found.prunable] == ["0", "1"]
    assert axes(found, "0")["1.weight"] == ("consumer", 1)
    assert axes(found, "1")["2.weight"] == ("consumer", 1)


def test_a_function_over_tokens_lets_channels_pass_as_a_layer_does() -> None:
    found = analyse(lambda m, x: F.conv1d(x, m.kernel, stride=1, padding=0))
    assert axes(found, "stem")["head.weight"] == ("consumer", 1)


def test_a_weight_that_is_computed_from_the_input_fixes_what_it_meets() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        x = m.stem(x)
        return nn.functional.linear(x, x)

    found = analyze_channels(Function(forward, stem=nn.Linear(3, 4)), torch.zeros(2, 3))
    assert found.fixed["stem"] == "'Function/linear_0' has a weight that is not a parameter"


def test_a_product_with_a_vector_fixes_what_it_sums() -> None:
    model = Function(
        lambda m, x: nn.functional.linear(m.stem(x), m.steps),
        stem=nn.Linear(3, 4),
        steps=nn.Parameter(torch.arange(4.0)),
    )
    found = analyze_channels(model, torch.zeros(2, 3))
    assert found.fixed["stem"] == "'Function/linear_0' has a weight of one axis"


def test_one_matrix_of_a_stack_reads_and_writes_the_last_axis_of_tokens() -> None:
    model = Function(
        lambda m, x: m.head(nn.functional.linear(m.stem(x), m.experts[1])),
        stem=nn.Linear(3, 4),
        head=nn.Linear(5, 2),
        experts=nn.Parameter(torch.zeros(2, 5, 4)),
    )
    found = analyze_channels(model, torch.zeros(2, 7, 3))
    assert axes(found, "stem") == {
        "stem.weight": ("producer", 0),
        "stem.bias": ("producer", 0),
        "experts": ("consumer", 2),
    }
    assert axes(found, "experts") == {"experts": ("producer", 1), "head.weight": ("consumer", 1)}


def test_a_product_added_to_a_bias_reads_rows_and_writes_columns() -> None:
    """As GPT-2 writes a linear layer: `addmm(bias, x, weight)`."""

    class Transposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(3, 4), nn.Linear(5, 2)
            self.weight, self.bias = nn.Parameter(torch.zeros(4, 5)), nn.Parameter(torch.zeros(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.addmm(self.bias, self.stem(x), self.weight))

    found = analyze_channels(Transposed(), torch.zeros(7, 3))
    assert axes(found, "stem")["weight"] == ("consumer", 0)
    assert axes(found, "weight") == {
        "weight": ("producer", 1),
        "bias": ("producer", 0),
        "head.weight": ("consumer", 1),
    }
