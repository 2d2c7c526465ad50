"""Promises of nncfx.network.network: model.nncf, and the model around it."""

import copy
import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, GraphError
from nncfx.network import NNCFNetwork, inputs_for, unwrap, wrap
from nncfx.tracing import Insertion, PostSite, PreSite, Priority, Site, WeightSite, run
from nncfx.tracing.calls.tensors import tensors_in
from small_models import Case, inputs, make


@pytest.fixture
def model() -> NNCFNetwork:
    return wrap(make("Sequential"), inputs("Sequential"))


@pytest.fixture
def halved(model: NNCFNetwork, halve: nn.Module) -> NNCFNetwork:
    insert(model, [Insertion(WeightSite("0", "weight"), halve, Priority.PRUNING, "halve")])
    return model


def insert(model: NNCFNetwork, insertions: Insertion | Iterable[Insertion]) -> None:
    model.nncf.register(insertions)
    model.nncf.commit()


def same(one: object, other: object) -> bool:
    pairs = zip(tensors_in(one), tensors_in(other), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def test_registering_changes_nothing(model: NNCFNetwork, halve: nn.Module) -> None:
    x = torch.ones(2, 4)
    before, keys = model(x), list(model.state_dict())
    model.nncf.register([Insertion(WeightSite("0", "weight"), halve, 0, "a")])
    assert same(model(x), before)
    assert list(model.state_dict()) == keys
    assert model.nncf.hooks == ()


def test_a_committed_weight_hook_changes_what_the_operation_reads(halved: NNCFNetwork) -> None:
    x = torch.ones(2, 4)
    first, _, last = halved
    weight = halved.state_dict()["0.weight"]
    expected = last(torch.relu(nn.functional.linear(x, weight * 0.5, first.bias)))
    assert same(halved(x), expected)


def test_hooks_run_by_priority_then_by_registration(
    model: NNCFNetwork, halve: nn.Module, add_one: nn.Module
) -> None:
    site, x = PostSite("Sequential/Linear[2]/linear_0"), torch.ones(2, 4)
    before = model(x)
    # (x + 1) / 2 and x / 2 + 1 differ; quantization comes last, whoever commits first
    insert(model, [Insertion(site, halve, Priority.QUANTIZATION, "late")])
    insert(model, [Insertion(site, add_one, Priority.PRUNING, "early")])
    assert torch.equal(model(x), (before + 1) * 0.5)
    assert [one.algorithm for one in model.nncf.hooks] == ["early", "late"]


def test_equal_priorities_keep_the_order_of_registration(
    model: NNCFNetwork, halve: nn.Module, add_one: nn.Module
) -> None:
    site, x = PostSite("Sequential/Linear[2]/linear_0"), torch.ones(2, 4)
    before = model(x)
    insert(model, [Insertion(site, halve, 5, "b"), Insertion(site, add_one, 5, "a")])
    assert torch.equal(model(x), before * 0.5 + 1)


def test_hook_parameters_have_a_prefix_and_no_position_in_the_state_dict(
    halved: NNCFNetwork,
) -> None:
    assert list(halved.state_dict()) == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
        "_nncf.halve.0|weight.factor",
    ]


def test_two_hooks_of_one_algorithm_at_one_site_have_two_keys(
    model: NNCFNetwork, halve: nn.Module
) -> None:
    site = PreSite("Sequential/Linear[0]/linear_0", 0)
    insert(model, [Insertion(site, halve, 0, "a"), Insertion(site, copy.deepcopy(halve), 0, "a")])
    keys = [key for key in model.state_dict() if key.startswith("_nncf")]
    assert keys == [
        "_nncf.a.Sequential/Linear[0]/linear_0|INPUT0.factor",
        "_nncf.a.Sequential/Linear[0]/linear_0|INPUT0#1.factor",
    ]


def test_a_sequential_does_not_iterate_over_our_storage(halved: NNCFNetwork) -> None:
    assert [type(child).__name__ for child in halved] == ["Linear", "ReLU", "Linear"]
    assert [name for name, _ in halved.named_children()] == ["0", "1", "2"]


def test_a_state_dict_round_trip_carries_model_and_hooks(halved: NNCFNetwork) -> None:
    x = torch.ones(2, 4)
    other = copy.deepcopy(halved)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    result = other.load_state_dict(halved.state_dict())
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert same(other(x), halved(x))


class Renamed(nn.Module):
    """A model whose states have another name for a part, as hooks of its class see to."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)
        self.register_state_dict_post_hook(self._old_names)
        self.register_load_state_dict_pre_hook(self._new_names)

    @staticmethod
    def _old_names(_: nn.Module, state: dict[str, Any], *_rest: object) -> None:
        for key in [key for key in state if key.startswith("part.")]:
            state[f"old.{key[5:]}"] = state.pop(key)

    @staticmethod
    def _new_names(_: nn.Module, state: dict[str, Any], *_rest: object) -> None:
        for key in [key for key in state if key.startswith("old.")]:
            state[f"part.{key[4:]}"] = state.pop(key)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.part(x)
        return result


def test_hooks_of_the_class_may_rename_what_is_loaded(halve: nn.Module) -> None:
    x = torch.ones(2, 4)
    model = wrap(Renamed(), x)
    insert(model, [Insertion(WeightSite("part", "weight"), halve, 0, "halve")])
    state, expected = copy.deepcopy(model.state_dict()), model(x)
    assert {"old.weight", "_nncf.halve.part|weight.factor"} <= set(state)
    nn.init.zeros_(model.part.weight)
    assert not any(model.load_state_dict(state))
    assert same(model(x), expected)


def test_missing_and_unexpected_hook_keys_are_reported(halved: NNCFNetwork) -> None:
    state = halved.state_dict()
    state["_nncf.gone.0|weight.factor"] = state.pop("_nncf.halve.0|weight.factor")
    result = halved.load_state_dict(state, strict=False)
    assert result.missing_keys == ["_nncf.halve.0|weight.factor"]
    assert result.unexpected_keys == ["_nncf.gone.0|weight.factor"]


@pytest.fixture
def twice(model: NNCFNetwork, halve: nn.Module) -> NNCFNetwork:
    """A model in which one hook stands at two sites, and a second one shares its tensor."""
    other = copy.deepcopy(halve)
    other.factor = halve.factor
    sites = [PreSite(f"Sequential/Linear[{number}]/linear_0", 0) for number in (0, 2)]
    insertions = [Insertion(site, halve, 0, "a") for site in sites]
    insert(model, [*insertions, Insertion(WeightSite("0", "weight"), other, 0, "b")])
    return model


FIRST = "_nncf.a.Sequential/Linear[0]/linear_0|INPUT0.factor"
FURTHER = ["_nncf.a.Sequential/Linear[2]/linear_0|INPUT0.factor", "_nncf.b.0|weight.factor"]


def test_a_tensor_at_several_sites_has_one_name(twice: NNCFNetwork) -> None:
    state = twice.state_dict()
    assert [key for key in state if key.startswith("_nncf")] == [FIRST]
    assert len({one.data_ptr() for one in state.values()}) == len(state)
    assert sorted(twice.nncf.further_names) == sorted(FURTHER)


@pytest.mark.parametrize("names", [[FIRST], FURTHER[:1], FURTHER[1:], [FIRST, *FURTHER]])
@pytest.mark.parametrize("assign", [False, True])
def test_a_tensor_at_several_sites_is_loaded_by_any_of_its_names(
    twice: NNCFNetwork, names: list[str], assign: bool
) -> None:
    state = dict(twice.state_dict())
    state.pop(FIRST)
    state |= dict.fromkeys(names, torch.tensor(3.0))
    twice.load_state_dict(state, assign=assign)
    assert [float(one.hook.factor.detach()) for one in twice.nncf.hooks] == [3.0] * 3


def test_a_tensor_at_several_sites_is_missing_once(twice: NNCFNetwork) -> None:
    state = dict(twice.state_dict())
    del state[FIRST]
    assert twice.load_state_dict(state, strict=False).missing_keys == [FIRST]


def test_one_tensor_with_two_values_in_a_state_is_told(twice: NNCFNetwork) -> None:
    state = dict(twice.state_dict()) | {FURTHER[0]: torch.tensor(7.0)}
    with pytest.raises(RuntimeError, match="are one tensor in this model, and two that differ"):
        twice.load_state_dict(state)


def test_a_wrapped_part_keeps_its_keys_below_its_prefix(halved: NNCFNetwork) -> None:
    outer = nn.ModuleDict({"part": halved})
    assert "part._nncf.halve.0|weight.factor" in outer.state_dict()
    assert "part._nncf.halve.0|weight.factor" in dict(outer.named_parameters())
    assert not outer.load_state_dict(outer.state_dict()).missing_keys


def test_hooks_train_with_the_model(halved: NNCFNetwork) -> None:
    optimizer = torch.optim.SGD(halved.parameters(), lr=0.1)
    halved(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert halved.state_dict()["_nncf.halve.0|weight.factor"] != 0.5


def test_hooks_follow_mode_and_dtype_of_the_model(halved: NNCFNetwork) -> None:
    (insertion,) = halved.nncf.hooks
    assert not insertion.hook.training
    halved.train()
    assert insertion.hook.training
    assert halved.double()(torch.ones(2, 4, dtype=torch.float64)).dtype == torch.float64


def test_removing_an_algorithm_restores_the_output(
    halved: NNCFNetwork, add_one: nn.Module
) -> None:
    x = torch.ones(2, 4)
    site = PostSite("Sequential/ReLU[1]/relu_0")
    with_one = halved(x)
    insert(halved, [Insertion(site, add_one, 0, "other")])
    assert not same(halved(x), with_one)
    halved.nncf.remove("other")
    assert same(halved(x), with_one)
    assert [one.algorithm for one in halved.nncf.hooks] == ["halve"]


def test_a_handle_removes_what_its_call_registered(model: NNCFNetwork, halve: nn.Module) -> None:
    x = torch.ones(2, 4)
    before = model(x)
    site = WeightSite("0", "weight")
    with model.nncf.register([Insertion(site, halve, 0, "a")]) as handle:
        model.nncf.commit()
        assert not same(model(x), before)
    assert same(model(x), before)
    handle.remove()
    assert model.nncf.hooks == ()


def test_an_insertion_removed_before_commit_never_takes_effect(
    model: NNCFNetwork, halve: nn.Module
) -> None:
    model.nncf.register([Insertion(WeightSite("0", "weight"), halve, 0, "a")]).remove()
    model.nncf.commit()
    assert model.nncf.hooks == ()


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (WeightSite("00", "weight"), "No module '00'"),
        (WeightSite("0", "wait"), "no parameter or buffer 'wait'. Did you mean 'weight'?"),
        (WeightSite("1", "weight"), "It has: none"),
        (PreSite("Sequential/Linear[0]/linear_1", 0), "Did you mean 'Sequential/Linear"),
        (PreSite("Sequential/ReLU[1]/relu_0", 1), "has no input port 1; it has 1"),
        (PostSite("Sequential/ReLU[1]/relu_0", -1), "has no output port -1"),
    ],
)
def test_a_site_that_does_not_exist_is_named(
    model: NNCFNetwork, halve: nn.Module, site: Site, message: str
) -> None:
    good = Insertion(WeightSite("0", "weight"), halve, 0, "a")
    with pytest.raises(GraphError) as caught:
        model.nncf.register([good, Insertion(site, halve, 0, "a")])
    assert message in str(caught.value)
    model.nncf.commit()
    assert model.nncf.hooks == ()


@pytest.mark.parametrize("name", ["", "a.b", "a#1", "forward", "_modules"])
def test_a_name_that_cannot_be_part_of_a_key_is_refused(
    model: NNCFNetwork, halve: nn.Module, name: str
) -> None:
    with pytest.raises(ArgumentError, match="cannot name an algorithm"):
        model.nncf.register([Insertion(WeightSite("0", "weight"), halve, 0, name)])


def test_a_hook_that_is_no_module_is_refused(model: NNCFNetwork) -> None:
    insertion = Insertion(WeightSite("0", "weight"), torch.relu, 0, "a")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ArgumentError, match=r"a hook is an nn\.Module"):
        model.nncf.register([insertion])


def _pickled(model: nn.Module) -> NNCFNetwork:
    return pickle.loads(pickle.dumps(model))  # noqa: S301 (our own bytes)


def _saved(model: nn.Module) -> NNCFNetwork:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)  # our own bytes


@pytest.mark.parametrize("copied", [copy.deepcopy, _pickled, _saved])
def test_a_copy_computes_the_same_and_is_independent(
    case: Case, copied: Callable[[nn.Module], NNCFNetwork], add_one: nn.Module
) -> None:
    model = wrap(case.make().eval(), case.inputs)
    raw = run(model, case.inputs)
    graph = model.nncf.graph
    sites = [WeightSite.of(name) for one in graph.operations for name in one.parameters.values()]
    places = [PostSite(one.address) for one in graph.operations]
    insert(
        model,
        [Insertion(site, copy.deepcopy(add_one), 0, "a") for site in dict.fromkeys(sites)]
        + [Insertion(site, copy.deepcopy(add_one), 0, "b") for site in places],
    )
    hooked = run(model, case.inputs)
    other = copied(model)
    assert isinstance(other, NNCFNetwork)
    assert same(run(other, case.inputs), hooked)
    unwrap(model)
    assert same(run(model, case.inputs), raw)
    assert same(run(other, case.inputs), hooked)
    assert other.nncf.graph == graph
    assert same(run(unwrap(other), case.inputs), raw)


def test_functional_call_swaps_the_models_and_the_hooks_parameters(halved: NNCFNetwork) -> None:
    x = torch.ones(2, 4)
    values = {name: torch.zeros_like(value) for name, value in halved.named_parameters()}
    values["2.bias"] = torch.tensor([1.0, 2.0])
    assert torch.equal(torch.func.functional_call(halved, values, (x,))[0], values["2.bias"])


def test_functional_call_puts_back_a_hook_that_stands_at_two_sites(twice: NNCFNetwork) -> None:
    before = dict(twice.named_parameters())
    x, weight = torch.ones(2, 4), twice.nncf.hooks[0].hook.factor
    values = {name: 3 * value.detach() for name, value in before.items()}
    changed = torch.func.functional_call(twice, values, (x,))
    assert not torch.equal(changed, twice(x))
    assert dict(twice.named_parameters()) == before
    assert all(one.hook.factor is weight for one in twice.nncf.hooks)


def test_example_inputs_are_those_of_wrap() -> None:
    x = torch.ones(1, 3)
    model = wrap(nn.Linear(3, 2), {"input": x})
    assert model.nncf.example_inputs == {"input": x}


def test_example_inputs_follow_the_model_to_another_device() -> None:
    model = wrap(nn.Linear(3, 2), torch.ones(1, 3)).to("meta")
    given = model.nncf.example_inputs
    assert isinstance(given, torch.Tensor)
    assert given.device.type == "meta"


def test_inputs_for_a_wrapped_model_are_its_own_unless_given() -> None:
    x = torch.ones(1, 3)
    model = wrap(nn.Linear(3, 2), x)
    assert inputs_for(model, None) is x
    other = torch.zeros(2, 3)
    assert inputs_for(model, other) is other


def test_a_model_that_is_not_wrapped_brings_no_inputs() -> None:
    with pytest.raises(ArgumentError, match="Linear is not wrapped"):
        inputs_for(nn.Linear(3, 2), None)


def test_channels_are_those_of_the_model_without_its_hooks() -> None:
    class Scaled(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return 2 * weight

    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    wrap(model, torch.ones(1, 3))
    before = str(model.nncf.channels)
    hook = Insertion(WeightSite.of("0.weight"), Scaled(), Priority.DEFAULT, "scaled")
    insert(model, [hook])
    assert str(model.nncf.channels) == before
    assert [group_set.size for group_set in model.nncf.channels.prunable] == [4]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (PostSite("Sequential/Linear[0]/linear_0"), "A PostSite cannot be registered"),
        (Insertion("Net/relu_0", nn.Identity(), 0, "a"), "'Net/relu_0' is a str, not a site"),  # type: ignore[arg-type]  # the mistake
        (
            Insertion(WeightSite("0", "weight"), nn.Identity(), "high", "a"),  # type: ignore[arg-type]  # the mistake
            "The priority of the hook at '0.weight' is 'high'",
        ),
    ],
)
def test_what_is_no_insertion_is_told_before_anything_changes(given: object, told: str) -> None:
    model: Any = wrap(nn.Sequential(nn.Linear(2, 3)), torch.zeros(1, 2))
    with pytest.raises(ArgumentError, match=told):
        model.nncf.register([given])
    model.nncf.commit()
    assert model.nncf.hooks == ()


@pytest.mark.parametrize("given", [None, 5, PostSite("Sequential/Linear[0]/linear_0"), nn.ReLU()])
def test_what_is_neither_an_insertion_nor_several_is_told(given: object) -> None:
    model: Any = wrap(nn.Sequential(nn.Linear(2, 3)), torch.zeros(1, 2))
    with pytest.raises(ArgumentError, match=f"A {type(given).__name__} cannot be registered"):
        model.nncf.register(given)


def test_one_insertion_can_be_registered_by_itself() -> None:
    model: Any = wrap(nn.Sequential(nn.Linear(2, 3)), torch.zeros(1, 2))
    one = Insertion(WeightSite("0", "weight"), nn.Identity(), 0, "a")
    insert(model, one)
    assert model.nncf.hooks == (one,)


class Scaled(nn.Module):
    """Calls an operator that torch does not list, on its argument and on a weight."""

    library = torch.library.Library("nncfx_test_network", "FRAGMENT")

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.nncfx_test_network.scaled(x, self.weight)
        return result


Scaled.library.define("scaled(Tensor x, Tensor weight) -> Tensor")
Scaled.library.impl("scaled", torch.mul, "CPU")


def test_around_an_operator_of_another_library_hooks_stand_where_its_module_is_entered() -> None:
    model: Any = wrap(nn.Sequential(Scaled()), torch.ones(1, 3))
    address = "Sequential/Scaled[0]/scaled_0"
    with pytest.raises(GraphError, match=r"cannot be hooked.*WeightSite\.of\('0\.weight'\)"):
        model.nncf.register(Insertion(PreSite(address, 1), nn.Identity(), 0, "a"))
    halves = nn.Hardtanh(0, 0.5)
    sites = [PreSite(address, 0), WeightSite("0", "weight"), PostSite(address)]
    insert(model, [Insertion(one, halves, 0, "a") for one in sites])
    assert torch.equal(model(torch.ones(1, 3)), torch.full((1, 3), 0.25))


def test_an_operator_of_another_library_beside_other_calls_cannot_be_hooked() -> None:
    class Beside(Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    model: Any = wrap(Beside(), torch.ones(1, 3))
    with pytest.raises(GraphError, match="Call it in a module of its own"):
        model.nncf.register(Insertion(PostSite("Beside/scaled_0"), nn.Identity(), 0, "a"))
