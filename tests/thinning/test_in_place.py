"""Promises of thinning in place: the thin copy's weights, in the model itself."""

import copy
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ThinningError
from nncfx.network import NNCFNetwork
from nncfx.thinning import ThinResult, rebuild, thin
from small_models import Function

PRUNED = {"algorithm": "structure_pruning", "pruning_init": 0.5, "params": {"pruning_target": 0.5}}


def network() -> nn.Module:
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3)]
    return nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(12 * 16, 5))


def image() -> torch.Tensor:
    return torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def masked() -> tuple[nn.Module, Any]:
    model = network()
    item = {"compression": PRUNED | {"params": {"pruning_target": 0.5, "align": 1}}}
    wrapped = nncfx.create_compressed_model(model, item, image())[1]
    return model, wrapped


def test_the_model_itself_becomes_what_the_thin_copy_is_bit_for_bit() -> None:
    expected = thin(masked()[1])
    model, wrapped = masked()
    parameters = list(model.parameters())
    weights = [weakref.ref(one.untyped_storage()) for one in parameters if one.dim() > 1]
    found = thin(wrapped, inplace=True)
    assert found.model is model
    assert type(model) is nn.Sequential
    assert not isinstance(model, NNCFNetwork)
    assert all(new is old for new, old in zip(model.parameters(), parameters, strict=True))
    _is_equal(found, expected)
    assert not any(one() for one in weights), "what the weights were is still in memory"


def _is_equal(found: ThinResult, expected: ThinResult) -> None:
    states = [one.model.state_dict() for one in (found, expected)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(one, states[1][name]) for name, one in states[0].items())
    for name in ("removed", "fixed", "sizes", "entries", "parameters", "channels", "recipe"):
        assert getattr(found, name) == getattr(expected, name), name
    with torch.no_grad():
        assert torch.equal(found.model.eval()(image()), expected.model.eval()(image()))


def test_a_plain_model_with_zeros_is_thinned_itself_and_rebuilt_from_its_recipe() -> None:
    model = nncfx.strip(masked()[1])
    expected = thin(copy.deepcopy(model), image())
    found = thin(model, image(), inplace=True)
    assert found.model is model
    _is_equal(found, expected)
    again = rebuild(network(), found.recipe, model.state_dict())
    assert torch.equal(again.eval()(image()), model.eval()(image()))


def test_a_tied_weight_stays_one_parameter() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 6)
            self.head = nn.Linear(6, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(x))

    model = Tied()
    model.embedding.weight.data[:, [1, 4]] = 0
    x = torch.arange(10)[None]
    expected = model(x)
    thin(model, x, inplace=True)
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.shape == (10, 4)
    torch.testing.assert_close(model(x), expected)


def test_a_width_in_the_code_is_found_before_anything_is_changed() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        return m.last(m.first(x).view(-1, 2, 4).relu().view(-1, 8))

    model = Function(forward, first=nn.Linear(3, 8), last=nn.Linear(8, 2))
    model.last.weight.data[:, ::2] = 0
    before = copy.deepcopy(model.state_dict())
    found = thin(model, torch.ones(2, 3), inplace=True)
    assert not found.removed
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_what_proves_nothing_is_refused_with_the_model_as_it_was() -> None:
    model, wrapped = masked()
    with torch.no_grad():
        model[6].weight.fill_(torch.nan)
    before = copy.deepcopy(wrapped.state_dict())
    with pytest.raises(ThinningError, match="is NaN"):
        thin(wrapped, inplace=True)
    assert isinstance(model, NNCFNetwork)
    after = wrapped.state_dict()
    assert all(torch.equal(after[name], one) or one.isnan().any() for name, one in before.items())


def counts() -> Function:
    """Computes with a number of entries that no shape tells."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        hidden = m.first(x).relu()
        return m.last(hidden) * hidden.nelement()

    return Function(forward, first=nn.Linear(3, 8), last=nn.Linear(8, 2))


def test_values_that_differ_are_told_with_what_is_to_be_done() -> None:
    model = counts()
    model.last.weight.data[:, ::2] = 0
    with pytest.raises(ThinningError, match="load its weights again, and leave out inplace"):
        thin(model, torch.ones(2, 3), inplace=True)


def test_models_that_a_second_one_is_needed_for_are_refused() -> None:
    quantized = nncfx.quantize(network(), [image()])
    with pytest.raises(ThinningError, match="quantizers at activations, and so cannot be thinned"):
        thin(quantized, inplace=True)
