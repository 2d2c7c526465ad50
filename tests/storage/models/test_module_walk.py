"""One pass over the modules finds what torch's own walks find."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from nncfx.storage.models.module_walk import all_modules, all_tensors


def shared() -> nn.Module:
    """Return a model in which a module has two names, a parameter three, and a place is empty."""
    block = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model = nn.Sequential(block, nn.ReLU(), block, nn.Linear(2, 2, bias=False))
    model[3].weight = block[0].weight
    model.register_module("nothing", None)
    model.register_buffer("none", None)
    model.register_buffer("scale", torch.ones(1))
    return model


@pytest.mark.parametrize("make", [shared, partial(nn.MultiheadAttention, 4, 2), nn.ReLU])
def test_modules_are_those_of_named_modules_in_order(make: Callable[[], nn.Module]) -> None:
    """Names, modules and order are torch's; a module with two names comes once."""
    model = make()
    assert all_modules(model) == list(model.named_modules())


def test_every_name_of_a_module_is_given_if_asked() -> None:
    """A module that stands at two places comes twice."""
    model = shared()
    every = list(model.named_modules(remove_duplicate=False))
    assert all_modules(model, every_name=True) == every
    assert len(every) == len(all_modules(model)) + 3


@pytest.mark.parametrize("make", [shared, partial(nn.MultiheadAttention, 4, 2), nn.ReLU])
def test_tensors_have_every_name(make: Callable[[], nn.Module]) -> None:
    """All names of parameters, then those of buffers, are torch's, with the very tensors."""
    model = make()
    expected = dict(model.named_parameters(remove_duplicate=False))
    expected |= dict(model.named_buffers(remove_duplicate=False))
    found = all_tensors(model)
    assert list(found) == list(expected)
    assert all(found[name] is tensor for name, tensor in expected.items())
