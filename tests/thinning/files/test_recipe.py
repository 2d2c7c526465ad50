"""A thin model is rebuilt from the original class, and its optimizer goes on."""

import copy
import json
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from nncfx.errors import ThinningError
from nncfx.thinning import ThinRecipe, ThinResult, rebuild, thin, thin_optimizer

IMAGE = torch.linspace(-1, 1, 2 * 3 * 5 * 5).reshape(2, 3, 5, 5)


def build(width: int = 6) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 4, 1),
        nn.Flatten(),
        nn.Linear(36, 2),
    )


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    made = build()
    made[3].weight.data[:, [1, 4]] = 0
    return made


def trained(model: nn.Module, optimizer: Optimizer) -> None:
    model.train()
    optimizer.zero_grad()
    model(IMAGE).square().sum().backward()
    optimizer.step()


def test_a_recipe_survives_json(model: nn.Module) -> None:
    recipe = thin(model, IMAGE).recipe
    assert ThinRecipe.from_json(recipe.to_json()) == recipe


def test_a_thin_model_is_rebuilt_from_the_original_class_and_its_weights(model: nn.Module) -> None:
    result = thin(model, IMAGE)
    again = rebuild(build(), result.recipe, result.model.state_dict())
    assert torch.equal(again.eval()(IMAGE), result.model.eval()(IMAGE))
    assert again[0].out_channels == 4


def test_without_weights_those_of_the_model_stay(model: nn.Module) -> None:
    again = rebuild(model, thin(model, IMAGE).recipe)
    assert torch.equal(again[0].weight, model[0].weight[[0, 2, 3, 5]])


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.0, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.0),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_channels_that_stay_is_kept(model: nn.Module, name: str) -> None:
    optimizer = OPTIMIZERS[name](model.parameters())
    trained(model, optimizer)
    before = copy.deepcopy(optimizer.state[model[0].weight])
    result = thin(model, IMAGE)
    thin_optimizer(optimizer, model, result.model, result.recipe)
    after = optimizer.state[result.model[0].weight]
    for key, value in before.items():
        expected = value if value is None or value.dim() == 0 else value[[0, 2, 3, 5]]
        assert torch.equal(after[key], expected)


def test_training_goes_on_with_the_thin_parameters(model: nn.Module) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    trained(model, optimizer)
    result = thin(model, IMAGE)
    thin_optimizer(optimizer, model, result.model, result.recipe)
    optimizer.param_groups[0]["lr"] = 0.1
    before = result.model[0].weight.clone()
    trained(result.model, optimizer)
    assert (result.model[0].weight != before).all()


def test_a_strange_parameter_of_the_optimizer_is_refused(model: nn.Module) -> None:
    result = thin(model, IMAGE)
    optimizer = torch.optim.SGD(build().parameters(), lr=0.1)
    with pytest.raises(ThinningError, match="a parameter that is not of the thinned Sequential"):
        thin_optimizer(optimizer, model, result.model, result.recipe)


def test_a_state_of_another_shape_is_refused(model: nn.Module) -> None:
    result = thin(model, IMAGE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model[0].weight]["row"] = torch.zeros(6)
    with pytest.raises(ThinningError, match=r"keeps 'row' of shape \(6,\) for '0.weight'"):
        thin_optimizer(optimizer, model, result.model, result.recipe)


def changed(result: ThinResult, **changes: object) -> str:
    return json.dumps(json.loads(result.recipe.to_json()) | changes)


def test_a_recipe_of_another_version_is_refused(model: nn.Module) -> None:
    with pytest.raises(ThinningError, match=r"version 99; .* version 1 is read"):
        ThinRecipe.from_json(changed(thin(model, IMAGE), version=99))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "nncfx thin recipe"}'])
def test_text_that_is_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(ThinningError, match="is not a thin recipe"):
        ThinRecipe.from_json(text)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3)), r"axis 0 of '0.weight', whose shape is \(3, 3\)"),
        (nn.Linear(3, 3), "shrinks '0.weight', which the model does not have"),
        (build(4), "Build the model with its original sizes"),
    ],
)
def test_another_model_is_refused(model: nn.Module, other: nn.Module, message: str) -> None:
    with pytest.raises(ThinningError, match=message):
        rebuild(other, thin(model, IMAGE).recipe)


def test_weights_of_the_dense_model_are_refused(model: nn.Module) -> None:
    with pytest.raises(ThinningError, match="Pass the state_dict of the thinned model"):
        rebuild(build(), thin(model, IMAGE).recipe, model.state_dict())
