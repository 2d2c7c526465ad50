"""Schemes compose in order, and a plain function is a scheme."""

import copy

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.graph.channels import Channels
from nncfx.schemes import (
    Compose,
    FilterPrune,
    FunctionScheme,
    NeuronPrune,
    Prune,
    Quantize,
    Scheme,
    as_scheme,
    prune,
)


class Recorder(Scheme):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def compress(self, model: nn.Module, level: float) -> None:
        del model
        self.log.append(f"compress {self.name} {level}")

    def decompress(self, model: nn.Module) -> None:
        del model
        self.log.append(f"decompress {self.name}")

    def parameters(self, model: nn.Module) -> frozenset[str]:
        del model
        return frozenset({self.name})


def test_compress_in_order_and_decompress_in_reverse() -> None:
    log: list[str] = []
    both = Compose([Recorder("a", log), Recorder("b", log)])
    both.compress(nn.Identity(), 0.25)
    both.decompress(nn.Identity())
    assert log == ["compress a 0.25", "compress b 0.25", "decompress b", "decompress a"]
    assert both.parameters(nn.Identity()) == {"a", "b"}


def test_a_composition_is_structured_when_one_part_is() -> None:
    assert Compose([FilterPrune(), Quantize()]).is_structured
    assert not Compose([Prune(), Quantize()]).is_structured


def test_binding_reaches_the_parts(convnet_channels: Channels) -> None:
    bound = Compose([Prune(), Compose([NeuronPrune()])]).bind(convnet_channels)
    assert bound == Compose([Prune(), Compose([NeuronPrune(channels=convnet_channels)])])


def test_compositions_are_equal_when_their_parts_are() -> None:
    assert Compose([Prune(), Quantize("float16")]) == Compose((Prune(), Quantize(torch.float16)))
    assert hash(Compose([Prune()])) == hash(Compose([Prune()]))


@pytest.mark.parametrize("wrong", [Prune(), [], [Prune(), 3]])
def test_what_is_no_list_of_schemes_is_refused(wrong: object) -> None:
    with pytest.raises(ArgumentError):
        Compose(wrong)  # type: ignore[arg-type] # the fault


def halve_odd_layers(model: nn.Module, level: float) -> None:
    for index, layer in enumerate(m for m in model.modules() if isinstance(m, nn.Linear)):
        if index % 2:
            layer.weight.copy_(prune(layer.weight, level))


def test_a_python_function_is_a_scheme() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[0.1, 0.6], [0.7, 0.2]]))
    before = model[0].weight.detach().clone()
    scheme = as_scheme(halve_odd_layers)
    assert scheme.parameters(model) == {"1.weight"}
    scheme.compress(model, 0.5)
    assert torch.equal(model[0].weight, before)
    assert (model[1].weight != 0).tolist() == [[False, True], [True, False]]


def test_looking_for_parameters_leaves_the_model_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    before = copy.deepcopy(model)
    as_scheme(halve_odd_layers).parameters(model)
    for a, b in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_function_can_be_undone() -> None:
    scheme = FunctionScheme(
        lambda model, _level: model.half() and None, lambda model: model.float() and None
    )
    model = nn.Linear(2, 2)
    scheme.compress(model, 0.1)
    assert model.weight.dtype == torch.float16
    scheme.decompress(model)
    assert model.weight.dtype == torch.float32
    assert scheme.parameters(model) == {"weight", "bias"}


def test_functions_compose_with_schemes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    Compose([halve_odd_layers, Quantize()]).compress(model, 0.9)
    assert model[0].weight.dtype == torch.float16


def test_a_level_out_of_range_never_reaches_the_function() -> None:
    with pytest.raises(ArgumentError, match=r"lies in \[0, 1\)"):
        as_scheme(halve_odd_layers).compress(nn.Linear(2, 2), 1.5)


def test_what_is_not_callable_is_no_scheme() -> None:
    with pytest.raises(ArgumentError, match="3 is not callable"):
        as_scheme(3)  # type: ignore[arg-type] # the fault
