"""Promises of nncfx.network.wrapping."""

import copy

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, TracingError
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.tracing import Insertion, PostSite, WeightSite, run, trace
from nncfx.tracing.calls.tensors import tensors_in
from small_models import Case, inputs, make


def test_the_wrapped_model_is_the_same_object_of_both_classes() -> None:
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


def test_a_wrapped_model_without_hooks_runs_the_original_forward() -> None:
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


def test_an_unwrapped_model_can_be_wrapped_again() -> None:
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


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of what torch imports to compile
def test_a_model_with_a_part_called_nncf_is_refused() -> None:
    model = nn.Sequential()
    model.nncf = nn.Linear(4, 2)
    with pytest.raises(TracingError, match=r"it has an attribute 'nncf'.*another name"):
        wrap(model, torch.ones(1, 4))


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


def test_wrapping_twice_is_refused() -> None:
    model = wrap(make("Shared"), inputs("Shared"))
    with pytest.raises(TracingError, match="Shared cannot be wrapped: it is wrapped already"):
        wrap(model, inputs("Shared"))


def test_a_model_with_a_wrapped_part_is_refused() -> None:
    model = nn.Sequential(wrap(make("Shared"), inputs("Shared")))
    with pytest.raises(TracingError, match="its module '0' is wrapped already"):
        wrap(model, inputs("Shared"))


SHARED = nn.SiLU()


def activated() -> nn.Sequential:
    """A network of a library whose networks all call one activation, as Ultralytics' do."""
    return nn.Sequential(nn.Linear(4, 4), SHARED, nn.Linear(4, 4), SHARED).eval()


def hooked(model: nn.Module, inputs: torch.Tensor, hook: nn.Module) -> NNCFNetwork:
    network = wrap(model, inputs)
    sites = [
        PostSite(one.address) for one in network.nncf.graph.operations if "silu" in one.address
    ]
    network.nncf.register([Insertion(one, hook, 0, "test") for one in sites])
    network.nncf.commit()
    return network


def test_models_that_share_an_activation_have_hooks_of_their_own(
    halve: nn.Module, add_one: nn.Module
) -> None:
    inputs = torch.randn(8, 4)
    plain, one, two = activated(), activated(), activated()
    expected = plain(inputs)
    alone = hooked(copy.deepcopy(two), inputs, add_one)(inputs)
    first = hooked(one, inputs, halve)
    before = first(inputs)
    assert torch.equal(hooked(two, inputs, add_one)(inputs), alone)
    assert torch.equal(first(inputs), before)
    assert torch.equal(plain(inputs), expected)
    assert one[1] is one[3]


def test_a_module_that_carries_hooks_of_another_model_is_refused(halve: nn.Module) -> None:
    encoder = nn.Linear(4, 4)
    inputs = torch.randn(8, 4)
    network = wrap(nn.Sequential(encoder, nn.Linear(4, 4)), inputs)
    network.nncf.register([Insertion(WeightSite("0", "weight"), halve, 0, "test")])
    network.nncf.commit()
    with pytest.raises(TracingError, match="its module '0' is part of another wrapped model too"):
        wrap(nn.Sequential(encoder, nn.Linear(4, 2)), inputs)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"wrap takes an nn\.Module, not a int"):
        wrap(3, torch.zeros(1))  # type: ignore[arg-type]  # what is tested


def test_a_model_that_refuses_its_inputs_stays_as_it_was() -> None:
    model = make("LeNet")
    original, attributes = type(model), set(vars(model))
    with pytest.raises(TracingError):
        wrap(model, torch.zeros(3))
    assert type(model) is original
    assert set(vars(model)) == attributes


def test_a_model_that_is_not_wrapped_cannot_be_unwrapped() -> None:
    with pytest.raises(TracingError, match="LeNet is not wrapped"):
        unwrap(make("LeNet"))
