"""Promises of nncfx.network.strip."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from nncfx.controllers.masks.masking import MaskHook
from nncfx.errors import TracingError
from nncfx.network import NNCFNetwork, strip, wrap
from nncfx.network.published_state import baked_weights
from nncfx.tracing import Insertion, PostSite, WeightSite, run
from nncfx.tracing.calls.tensors import tensors_in
from small_models import Case, inputs, make


def hooked(model: nn.Module, inputs: object, hook: nn.Module) -> NNCFNetwork:
    wrapped = wrap(model, inputs)
    hook.requires_grad_(requires_grad=False)  # torch gives running statistics no gradient
    names = {name for one in wrapped.nncf.graph.operations for name in one.parameters.values()}
    wrapped.nncf.register(
        Insertion(WeightSite.of(name), copy.deepcopy(hook), 0, "test") for name in sorted(names)
    )
    wrapped.nncf.commit()
    return wrapped


def test_the_stripped_model_computes_the_same(case: Case, halve: nn.Module) -> None:
    model = hooked(case.make().eval(), case.inputs, halve)
    before = list(tensors_in(run(model, case.inputs)))
    plain = strip(model)
    after = list(tensors_in(run(plain, case.inputs)))
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    again = list(tensors_in(run(model, case.inputs)))
    assert all(torch.equal(one, other) for one, other in zip(before, again, strict=True))


def test_the_stripped_model_has_no_trace_of_nncfx(case: Case, halve: nn.Module) -> None:
    original = case.make()
    plain = strip(hooked(copy.deepcopy(original), case.inputs, halve))
    assert list(plain.state_dict()) == list(original.state_dict())
    for module, other in zip(plain.modules(), original.modules(), strict=True):
        assert type(module) is type(other)
        assert vars(module).keys() == vars(other).keys()


def test_what_a_parameter_was_for_gradients_it_stays(halve: nn.Module) -> None:
    model = make("LeNet")
    model.conv1.weight.requires_grad_(requires_grad=False)
    plain = strip(hooked(model, inputs("LeNet"), halve))
    assert not plain.get_parameter("conv1.weight").requires_grad
    assert plain.get_parameter("conv2.weight").requires_grad
    assert plain.get_parameter("conv2.weight").is_leaf


@pytest.fixture
def tied() -> nn.Sequential:
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    return nn.Sequential(embedding, head)


def test_a_weight_that_all_readers_read_alike_stays_shared(
    tied: nn.Sequential, halve: nn.Module
) -> None:
    plain: Any = strip(hooked(tied, torch.tensor([1]), halve))
    assert plain[0].weight is plain[1].weight


def test_a_weight_that_readers_read_differently_is_split(
    tied: nn.Sequential, halve: nn.Module
) -> None:
    model: Any = wrap(tied, torch.tensor([1]))
    model.nncf.register([Insertion(WeightSite("1", "weight"), halve, 0, "test")])
    model.nncf.commit()
    plain: Any = strip(model)
    assert torch.equal(plain[1].weight, plain[0].weight * 0.5)


def test_an_identity_on_an_activation_goes_without_loss() -> None:
    model = wrap(make("LeNet"), inputs("LeNet"))
    model.nncf.register([Insertion(PostSite("LeNet/relu_0"), nn.Identity(), 0, "test")])
    model.nncf.commit()
    assert torch.equal(strip(model)(inputs("LeNet")), model(inputs("LeNet")))


def test_a_hook_on_an_activation_is_refused_by_name(halve: nn.Module) -> None:
    model = wrap(make("LeNet"), inputs("LeNet"))
    model.nncf.register([Insertion(PostSite("LeNet/relu_0"), halve, 0, "test")])
    model.nncf.commit()
    with pytest.raises(TracingError, match=r"Halve of 'test' at 'LeNet/relu_0\|OUTPUT0'"):
        strip(model)


def test_a_model_that_is_not_wrapped_is_refused() -> None:
    with pytest.raises(TracingError, match="LeNet is not wrapped"):
        strip(make("LeNet"))


class Caching(nn.Module):
    """Keeps what it has computed in evaluation, as transformers' LeViT does."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(3))
        self.cache: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.cache.setdefault("bias", 2 * self.bias)


def test_what_a_forward_with_gradients_has_left_is_copied() -> None:
    """Torch itself refuses; the weight that weight_norm makes is made again by the copy."""
    with pytest.warns(FutureWarning, match="weight_norm"):
        normed = nn.utils.weight_norm(nn.Linear(3, 3))
    wrapped = wrap(nn.Sequential(Caching(), normed).eval(), torch.ones(1, 3))
    expected = wrapped(torch.ones(1, 3))
    assert not wrapped[0].cache["bias"].is_leaf
    stripped = strip(wrapped)
    assert type(stripped) is nn.Sequential
    assert torch.equal(stripped(torch.ones(1, 3)), expected)
    assert wrapped[0].cache["bias"].requires_grad


def test_in_place_the_model_itself_becomes_what_its_copy_would_be(
    case: Case, halve: nn.Module
) -> None:
    model = hooked(case.make().eval(), case.inputs, halve)
    expected = strip(model).state_dict()
    modules = [one for _, one in nn.Module.named_modules(model)]
    held = {id(one): one.data_ptr() for one in model.parameters()}
    plain = strip(model, inplace=True)
    assert plain is model
    assert list(plain.modules()) == modules
    assert type(plain).__mro__.count(NNCFNetwork) == 0
    state = plain.state_dict()
    assert list(state) == list(expected)
    assert all(torch.equal(one, expected[name]) for name, one in state.items())
    assert all(held[id(one)] == one.data_ptr() for one in plain.parameters())


def test_in_place_a_tied_weight_that_is_read_differently_is_split(
    tied: nn.Sequential, halve: nn.Module
) -> None:
    model: Any = wrap(tied, torch.tensor([1]))
    model.nncf.register([Insertion(WeightSite("1", "weight"), halve, 0, "test")])
    model.nncf.commit()
    before = model.get_parameter("0.weight").detach().clone()
    plain: Any = strip(model, inplace=True)
    assert torch.equal(plain[0].weight, before)
    assert torch.equal(plain[1].weight, before * 0.5)


def test_the_largest_weight_is_baked_first(halve: nn.Module) -> None:
    layers = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 9), nn.Linear(9, 1))
    model = hooked(layers, torch.ones(1, 2), halve)
    sizes = [held.numel() for held, _ in baked_weights(model, model.nncf.hooks)]
    assert sizes == [27, 9, 9, 6, 3, 1]


class Sizes(TorchDispatchMode):
    """Notes the largest tensor that operations return, without views."""

    largest = 0

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {one.untyped_storage().data_ptr() for one in tensors_in(args)}
        new = [one for one in tensors_in(result) if one.untyped_storage().data_ptr() not in given]
        self.largest = max([self.largest, *(one.numel() for one in new)])
        return result


def test_in_place_a_large_mask_is_baked_without_a_second_weight() -> None:
    model = wrap(nn.Sequential(nn.Linear(2048, 1024)), torch.ones(1, 2048))
    mask = torch.ones(1024, 2048).triu()
    expected = model[0].weight.detach() * mask
    model.nncf.register([Insertion(WeightSite("0", "weight"), MaskHook(mask), 0, "test")])
    model.nncf.commit()
    with Sizes() as sizes:
        strip(model, inplace=True)
    assert torch.equal(model[0].weight, expected)
    assert sizes.largest < 1024 * 2048
