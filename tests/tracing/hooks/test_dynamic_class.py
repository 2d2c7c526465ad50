"""Promises of nncfx.tracing.hooks.dynamic_class."""

import gc
import weakref

import torch
from torch import nn

from nncfx.tracing.hooks.dynamic_class import (
    ClassSpec,
    HookedModule,
    change_class,
    original_class,
    restore_class,
)


def test_a_dynamic_class_looks_like_the_original() -> None:
    layer = nn.Linear(1, 1)
    change_class(layer, ClassSpec(nn.Linear, HookedModule))
    assert isinstance(layer, nn.Linear)
    made = type(layer)
    assert made is not nn.Linear
    assert (made.__name__, made.__module__) == ("Linear", nn.Linear.__module__)
    assert original_class(layer) is nn.Linear


def test_equal_specs_give_one_class() -> None:
    one, other = nn.Linear(1, 1), nn.Linear(2, 2)
    for layer in (one, other):
        change_class(layer, ClassSpec(nn.Linear, HookedModule))
    assert type(one) is type(other)


def test_restoring_gives_the_original_class_back() -> None:
    layer = nn.Linear(1, 1)
    change_class(layer, ClassSpec(nn.Linear, HookedModule))
    restore_class(layer)
    assert type(layer) is nn.Linear


def test_a_class_nobody_uses_is_forgotten() -> None:
    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    module = Local()
    change_class(module, ClassSpec(Local, HookedModule))
    made = weakref.ref(type(module))
    restore_class(module)
    gc.collect()
    assert made() is None
