"""Hooks that are told of each call of the model they stand in."""

import copy
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.tracing import Insertion, PostSite
from nncfx.tracing.hooks.call_hooks import CallHook
from nncfx.tracing.hooks.installation import unhooked

X = torch.ones(1, 2)


class Noting(CallHook, nn.Identity):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    def before_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.told.append((*args, dict(kwargs)))


class Net(nn.Module):
    """Takes a number beside its input."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.fc(x).relu() * scale


def noted() -> tuple[NNCFNetwork, Noting]:
    model, hook = wrap(Net(), X), Noting()
    sites = [PostSite("Net/relu_0"), PostSite("Net/Linear[fc]/linear_0")]
    model.nncf.register(Insertion(site, hook, 0, "test") for site in sites)
    model.nncf.commit()
    return model, hook


def test_a_hook_is_told_once_of_each_call_as_it_is_made() -> None:
    model, hook = noted()
    model(X, scale=2.0)
    model.forward(X, 3.0)
    model.fc(X)
    assert hook.told == [(X, {"scale": 2.0}), (X, 3.0, {})]


def test_a_forward_set_on_the_instance_hides_no_call() -> None:
    net = Net()
    net.forward = types.MethodType(Net.forward, net)  # type: ignore[method-assign]  # as trainers do
    model, hook = wrap(net, X), Noting()
    model.nncf.register([Insertion(PostSite("Net/Linear[fc]/linear_0"), hook, 0, "test")])
    model.nncf.commit()
    model(X, scale=2.0)
    assert hook.told == [(X, {"scale": 2.0})]


def test_a_copy_tells_its_own_hooks() -> None:
    model, hook = noted()
    copied = copy.deepcopy(model)
    copied(X)
    own = copied.nncf.hooks[0].hook
    assert isinstance(own, Noting)
    assert (len(own.told), len(hook.told)) == (1, 0)


def test_a_removed_hook_is_told_of_nothing() -> None:
    model, hook = noted()
    model.nncf.remove("test")
    model(X)
    assert not hook.told
    model, hook = noted()
    plain = unwrap(model)
    plain(X)
    assert not hook.told
    assert not any(name.startswith("_nncf") for name in vars(plain))


def test_a_copy_without_hooks_keeps_a_forward_that_was_made_of_the_hooked_one() -> None:
    """As accelerate sets one on the instance, for mixed precision."""
    model, hook = noted()
    inner = type(model).forward

    def half(own: NNCFNetwork, x: Tensor) -> Tensor:
        return inner(own, x) / 2

    vars(model)["forward"] = types.MethodType(half, model)
    plain = unhooked(model)
    assert "forward" in vars(plain)
    assert torch.equal(plain(X), model(X))
    assert hook.told[-1] == (X, {})


class Half(nn.Module):
    """Halves what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


def test_a_forward_set_on_a_layer_outlives_its_hooks_too() -> None:
    """As accelerate sets one around that of the class, for autocast."""
    torch.manual_seed(0)
    net = Net()
    expected = net(X)
    model = wrap(net, X)
    for site, hook in {"Net/relu_0": Noting(), "Net/Linear[fc]/linear_0": Half()}.items():
        model.nncf.register([Insertion(PostSite(site), hook, 0, "test")])
    model.nncf.register([Insertion(PostSite("Net/relu_0"), Half(), 1, "test")])
    model.nncf.commit()
    for module in (model, model.fc):
        module.forward = types.MethodType(type(module).forward, module)
    torch.testing.assert_close(model(X), expected / 4)
    torch.testing.assert_close(unwrap(model)(X), expected)
