"""Promises of nncfx.network.wrapping."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, TracingError
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.tracing import run, trace
from nncfx.tracing.calls.tensors import tensors_in

Case: TypeAlias = Any  # of conftest, which a test module cannot import

Make = Callable[[str], nn.Module]
Inputs = Callable[[str], Any]


def test_the_wrapped_model_is_the_same_object_of_both_classes(make: Make, inputs: Inputs) -> None:
    model = make("LeNet")
    original = type(model)
    assert wrap(model, inputs("LeNet")) is model
    assert isinstance(model, NNCFNetwork)
    assert isinstance(model, original)
    assert type(model).__name__ == "LeNet"


def test_wrapping_changes_no_output_and_no_state_dict(case: Case) -> None:
    model = case.make().eval()
    keys = list(model.state_dict())
    before = list(tensors_in(run(model, case.inputs)))
    wrap(model, case.inputs)
    after = list(tensors_in(run(model, case.inputs)))
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert list(model.state_dict()) == keys


def test_the_graph_is_that_of_the_model(case: Case) -> None:
    model = case.make()
    graph = trace(model, case.inputs)
    assert wrap(model, case.inputs).nncf.graph == graph


def test_a_wrapped_model_without_hooks_runs_the_original_forward(
    make: Make, inputs: Inputs
) -> None:
    model = make("LeNet")
    forward = type(model).forward
    wrap(model, inputs("LeNet"))
    assert type(model).forward is forward


def test_unwrap_restores_the_object_exactly(case: Case) -> None:
    model = case.make()
    classes = [type(module) for module in model.modules()]
    attributes = [dict(vars(module)) for module in model.modules()]
    assert unwrap(wrap(model, case.inputs)) is model
    assert [type(module) for module in model.modules()] == classes
    for module, before in zip(model.modules(), attributes, strict=True):
        assert vars(module).keys() == before.keys()


def test_an_unwrapped_model_can_be_wrapped_again(make: Make, inputs: Inputs) -> None:
    model = unwrap(wrap(make("Shared"), inputs("Shared")))
    assert isinstance(wrap(model, inputs("Shared")), NNCFNetwork)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch._dynamo's own, at import
def test_a_compiled_model_is_refused_before_anything_runs() -> None:
    with pytest.raises(TracingError, match=r"it is compiled.*compile what nncfx\.wrap returns"):
        wrap(torch.compile(nn.Linear(2, 3)), torch.zeros(1, 2))


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch._dynamo's own, at import
def test_a_part_without_shapes_yet_is_named() -> None:
    with pytest.raises(TracingError, match=r"'1' is a LazyLinear whose parameters.*Run the model"):
        wrap(nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3)), torch.zeros(1, 2))


def test_a_part_that_was_compiled_in_place_is_named() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    model[0].compile()
    with pytest.raises(TracingError, match="its module '0' is compiled"):
        wrap(model, torch.zeros(1, 2))
    assert type(model) is nn.Sequential


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torch_script_is_refused() -> None:
    with pytest.raises(TracingError, match="it is TorchScript"):
        wrap(torch.jit.script(nn.Linear(2, 3)), torch.zeros(1, 2))


def test_wrapping_twice_is_refused(make: Make, inputs: Inputs) -> None:
    model = wrap(make("Shared"), inputs("Shared"))
    with pytest.raises(TracingError, match="Shared cannot be wrapped: it is wrapped already"):
        wrap(model, inputs("Shared"))


def test_a_model_with_a_wrapped_part_is_refused(make: Make, inputs: Inputs) -> None:
    model = nn.Sequential(wrap(make("Shared"), inputs("Shared")))
    with pytest.raises(TracingError, match="its module '0' is wrapped already"):
        wrap(model, inputs("Shared"))


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"wrap takes an nn\.Module, not a int"):
        wrap(3, torch.zeros(1))  # type: ignore[arg-type]  # what is tested


def test_a_model_that_refuses_its_inputs_stays_as_it_was(make: Make) -> None:
    model = make("LeNet")
    original, attributes = type(model), set(vars(model))
    with pytest.raises(TracingError):
        wrap(model, torch.zeros(3))
    assert type(model) is original
    assert set(vars(model)) == attributes


def test_a_model_that_is_not_wrapped_cannot_be_unwrapped(make: Make) -> None:
    with pytest.raises(TracingError, match="LeNet is not wrapped"):
        unwrap(make("LeNet"))
