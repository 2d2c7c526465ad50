"""Layers of a model, and what reads them."""

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.network import wrap
from nncfx.operators import LINEAR_LAYERS
from nncfx.quantization import (
    RoundingSettings,
    correct_biases,
    quantize,
    quantize_weights,
    round_weights,
    smooth_layers,
)
from nncfx.quantization.preparation.layer_chains import (
    find_layers,
    reader_behind,
    readers,
    shared_parameters,
)
from nncfx.tracing import trace

IMAGES = torch.zeros(2, 3, 8, 8)


class Various(nn.Module):
    """A layer called once, one called twice, two with one weight, and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = nn.Linear(4, 4), nn.Linear(4, 4)
        self.tied, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.tied.weight
        self.matrix = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.twice(self.once(x)))
        return nn.functional.linear(self.other(self.tied(x)), self.matrix)


def test_only_layers_whose_parameters_are_their_own_are_found() -> None:
    model = Various()
    found = find_layers(model, trace(model, torch.zeros(2, 4)))
    assert [one.name for one in found.values()] == ["once"]


def test_parameters_with_several_readers_are_shared_by_any_name() -> None:
    model = Various()
    assert shared_parameters(model, trace(model, torch.zeros(2, 4))) == {
        *("twice.weight", "twice.bias", "tied.weight", "other.weight")
    }


def test_a_root_that_is_a_layer_is_found() -> None:
    model = nn.Linear(4, 2)
    assert [
        one.module for one in find_layers(model, trace(model, torch.zeros(2, 4))).values()
    ] == [model]


def test_the_stored_weight_is_read_past_the_hooks() -> None:
    model = nncfx.wrap(nn.Sequential(nn.Linear(4, 2)), torch.zeros(2, 4))
    (layer,) = find_layers(model, model.nncf.graph).values()
    assert layer.weight is dict(model.named_parameters())["0.weight"]


@pytest.mark.parametrize(
    ("between", "seen"),
    [
        ([nn.ReLU()], True),
        ([nn.ReLU(), nn.Flatten()], True),
        ([nn.Flatten(2)], False),
        ([nn.Sigmoid()], False),
    ],
)
def test_a_reader_is_seen_through_what_leaves_channels_in_place(
    between: list[nn.Module], *, seen: bool
) -> None:
    last = nn.Softmax(1)
    graph = trace(nn.Sequential(nn.Conv2d(3, 4, 1), *between, last), IMAGES)
    found = reader_behind(graph, graph.operations[0], {"relu", "flatten"})
    assert (found is graph.operations[-1]) is seen


def test_the_model_output_is_a_reader_without_an_operation() -> None:
    graph = trace(nn.Conv2d(3, 4, 1), IMAGES)
    assert list(readers(graph, graph.addresses[0])) == [None]


class Turned(nn.Linear):
    """Computes what its base does, its weight turned and spelt in another way."""

    def __init__(self, layer: nn.Linear, spelling: str) -> None:
        super().__init__(layer.in_features, layer.out_features)
        self.spelling = spelling
        self.bias = layer.bias
        weight = layer.weight.detach().clone()
        self.weight = nn.Parameter(weight if spelling == "x @ w.T" else weight.T.contiguous())

    def forward(self, x: Tensor) -> Tensor:
        if self.spelling == "addmm":
            y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
            return y.view(*x.shape[:-1], -1)
        weight = self.weight.T if self.spelling == "x @ w.T" else self.weight
        return x @ weight + self.bias


class Block(nn.Module):
    """What SmoothQuant, GPTQ, block reconstruction and bias correction all work on."""

    def __init__(self, spelling: str | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        with torch.no_grad():
            self.norm.weight[3] *= 30
        if spelling is not None:
            self.up, self.down = Turned(self.up, spelling), Turned(self.down, spelling)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return y


SPELLINGS = ["addmm", "x @ w", "x @ w.T"]
X = torch.randn(6, 5, 16, generator=torch.Generator().manual_seed(1))


def rows(model: nn.Module, name: str) -> Tensor:
    """The weight with the outputs on axis 0, by its shape."""
    weight = model.get_parameter(f"{name}.weight").detach()
    return weight if len(weight) == {"up": 32, "down": 16}[name] else weight.T


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_linear_layer_is_found_however_it_spells_its_product(spelling: str) -> None:
    model = wrap(Block(spelling), X)
    found = find_layers(model, model.nncf.graph, LINEAR_LAYERS)
    assert [one.name for one in found.values()] == ["up", "down"]
    for one in found.values():
        assert torch.equal(one.rows, rows(model, one.name))
        assert one.is_matrix
        assert (one.bias is not None) == (spelling == "addmm")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_gptq_does_the_same_to_it(spelling: str) -> None:
    one, other = (quantize_weights(Block(each), [X]) for each in (spelling, None))
    shares = [round_weights(each, [X]) for each in (one, other)]
    assert shares[0] == pytest.approx(shares[1], rel=1e-3)
    assert max(shares[0].values()) < 0.9
    for name in ("up", "down"):
        assert torch.allclose(rows(one, name), rows(other, name), atol=1e-7)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_adaptive_rounding_works_on_it(spelling: str) -> None:
    """Not to the same bits: it draws examples, of which a flattened batch has more."""
    model = quantize_weights(Block(spelling), [X])
    shares = round_weights(model, [X], method="adaptive", settings=RoundingSettings(steps=60))
    assert shares.keys() == {"up", "down"}
    assert max(shares.values()) < 1
    for name in ("up", "down"):
        weight = rows(model, name)
        steps = weight / rows(Block(spelling), name).abs().amax(1, keepdim=True) * 127
        assert torch.allclose(steps, steps.round(), atol=1e-3)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_smoothing_does_the_same_to_it(spelling: str) -> None:
    one, other, before = Block(spelling).eval(), Block(None).eval(), Block(None).eval()
    shares = [smooth_layers(each, [X], X) for each in (one, other)]
    assert [layers for _, layers in shares[0]] == [layers for _, layers in shares[1]] == [("up",)]
    assert torch.allclose(one.norm.weight, other.norm.weight)
    assert not torch.equal(one.norm.weight, before.norm.weight)
    assert torch.allclose(rows(one, "up"), rows(other, "up"))
    assert torch.allclose(one(X), before(X), atol=1e-5)


def test_bias_correction_does_the_same_to_it() -> None:
    models = [quantize(Block(each), [X], weight_bits=4) for each in ("addmm", None)]
    shifts = [correct_biases(each, [X]) for each in models]
    assert shifts[0] == pytest.approx(shifts[1], rel=1e-3)
    assert shifts[0].keys() == {"up", "down"}


def test_a_matrix_that_two_products_read_is_nobodys_own() -> None:
    class Twice(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            turned = self.weight.T
            return x @ turned + (x + 1) @ turned

    model = wrap(Twice(4, 4), torch.ones(1, 4))
    assert not find_layers(model, model.nncf.graph, LINEAR_LAYERS)
