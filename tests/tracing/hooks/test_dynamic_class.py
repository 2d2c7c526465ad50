"""Promises of nncfx.tracing.hooks.dynamic_class."""

import copy
import gc
import io
import weakref

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import TracingError
from nncfx.network import NNCFNetwork
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


def masked() -> NNCFNetwork:
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), nn.Flatten(), nn.Linear(16, 2)
    )
    config = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}
    return nncfx.create_compressed_model(net, config, torch.ones(1, 3, 2, 2))[1]


@pytest.mark.parametrize("replacement", [nn.Linear(16, 5), None])
def test_a_module_with_hooks_is_not_replaced_by_one_without(
    replacement: nn.Module | None,
) -> None:
    model = masked()
    with pytest.raises(TracingError, match="The Linear '2' carries hooks of nncfx"):
        model[2] = replacement
    with pytest.raises(TracingError, match="The Linear '2' carries hooks of nncfx"):
        model.add_module("2", replacement)
    with pytest.raises(TracingError, match=r"The Conv2d '0\.0' carries hooks of nncfx"):
        del model[0]
    model[0][1] = nn.Identity()  # nothing stands there
    nncfx.strip(model, inplace=True)
    model[2] = replacement


def test_a_module_with_hooks_goes_on_within_another() -> None:
    model, image = masked(), torch.ones(1, 3, 2, 2)
    expected = -model(image)

    class Negative(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -self.inner(x)

    model[2] = Negative(model[2])
    assert torch.equal(model(image), expected)


def test_a_weight_with_hooks_keeps_its_shape() -> None:
    model = masked()
    model[2].weight = nn.Parameter(torch.ones(2, 16))
    with pytest.raises(TracingError, match=r"cannot become of shape \(5, 16\)"):
        model[2].weight = nn.Parameter(torch.ones(5, 16))


def test_modules_of_fx_are_copied_and_pickled_with_their_hooks() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, 3)
    traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))
    item = {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}
    _, model = nncfx.create_compressed_model(traced, {"compression": item}, inputs)
    expected, file = model(inputs), io.BytesIO()
    torch.save(model, file)
    copied = copy.deepcopy(copy.deepcopy(model))
    read = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert torch.equal(model(inputs), expected)  # torch.save left it as it was
    for other in (copied, read):
        assert torch.equal(other(inputs), expected)
        assert [str(one.site) for one in other.nncf.hooks] == ["0.weight", "2.weight"]
        nncfx.unwrap(other)
        assert not torch.equal(other(inputs), expected)
    assert torch.equal(model(inputs), expected)


def test_channels_of_a_module_of_fx_are_thinned() -> None:
    torch.manual_seed(0)
    traced = torch.fx.symbolic_trace(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    )
    images = torch.randn(2, 3, 8, 8)
    item = {
        "algorithm": "filter_pruning",
        "pruning_init": 0.5,
        "params": {"prune_first_conv": True},
    }
    _, model = nncfx.create_compressed_model(traced, {"compression": item}, images)
    thin = nncfx.thin(model).model
    assert thin.get_submodule("0").out_channels == 4
    torch.testing.assert_close(thin(images), model.eval()(images))
