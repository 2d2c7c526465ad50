"""Promises of nncfx.tracing.hooks.dynamic_class."""

import copy
import gc
import io
import pickle
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Self, SupportsIndex, TypeVar

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import TracingError
from nncfx.network import NNCFNetwork, unwrap
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.hooks.dynamic_class import (
    ClassSpec,
    HookedModule,
    change_class,
    original_class,
    restore_class,
)
from small_models import Function


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


def local() -> tuple[nn.Module, weakref.ref[type]]:
    """Return a module of a class of its own that had hooks, and its class of that time."""

    class Local(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    module = Local()
    change_class(module, ClassSpec(Local, HookedModule))
    made = weakref.ref(type(module))
    restore_class(module)
    gc.collect()
    return module, made


def test_another_copy_of_a_model_gets_the_same_class() -> None:
    module, made = local()
    again = copy.deepcopy(module)
    change_class(again, ClassSpec(type(module), HookedModule))
    assert type(again) is made()


def test_a_class_nobody_uses_is_forgotten_after_others() -> None:
    _, made = local()
    for _ in range(64):
        local()
    assert made() is None


def masked() -> NNCFNetwork:
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), nn.Flatten(), nn.Linear(16, 2)
    )
    config = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}
    return nncfx.create_compressed_model(net, config, torch.ones(1, 3, 2, 2))[1]


@pytest.mark.parametrize("replacement", [nn.Linear(16, 5), None])
def test_a_module_with_hooks_is_not_replaced_by_one_without(replacement: nn.Module | None) -> None:
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


def test_a_module_that_was_quantized_is_replaced_as_the_message_says() -> None:
    """As adapters of PEFT are by what `merge_and_unload()` makes of them."""
    x = torch.randn(4, 8)
    model = nncfx.quantize(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)), [x])
    with pytest.raises(TracingError, match=r"model\.nncf\.remove\('quantization'\) takes away\.$"):
        model[1] = nn.Linear(8, 3)
    model.nncf.remove("quantization")
    model[1] = nn.Linear(8, 3)
    again = nncfx.quantize(nncfx.unwrap(model), [x])
    assert again(x).shape == (4, 3)


def test_a_module_with_hooks_goes_on_within_another() -> None:
    model, image = masked(), torch.ones(1, 3, 2, 2)
    expected = -model(image)

    def negative(inner: nn.Module) -> Function:
        return Function(lambda m, x: -m.inner(x), inner=inner)

    model[2] = negative(model[2])
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


class MadeByName(nn.Linear):
    """Says with which keywords it is made again, as the models of gluonts do."""

    def __new__(cls, *, width: int) -> Self:
        assert width == 3
        return super().__new__(cls)

    def __init__(self, *, width: int) -> None:
        super().__init__(4, width)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), {"width": self.out_features}


class MadeByFunction(nn.Linear):
    """Says by which function it is made again, before its state is set."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return nn.Linear.__new__, (MadeByFunction,), self.__dict__


@pytest.mark.parametrize("layer", [MadeByName(width=3), MadeByFunction(4, 3)], ids=repr)
def test_a_module_that_says_how_it_is_made_is_copied_with_its_hooks(layer: nn.Module) -> None:
    x = torch.randn(2, 4)
    _, model = nncfx.create_compressed_model(
        nn.Sequential(layer),
        {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}},
        x,
    )
    pickled = pickle.loads(pickle.dumps(model))  # noqa: S301 (our own bytes)
    for again in (copy.deepcopy(model), pickled):
        assert original_class(again[0]) is original_class(model[0])
        assert again[0].weight is not model[0].weight
        assert torch.equal(again(x), model(x))


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


class Scored(ABC, nn.Module):
    """As many models are: its first base has no attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), Normed(8), nn.Linear(8, 2)

    @abstractmethod
    def score(self, x: torch.Tensor) -> torch.Tensor: ...

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score(self.norm(self.first(x).relu()))

    def train(self, mode: bool = True) -> "Scored":
        self.trained = mode
        return super().train(mode)


T = TypeVar("T")


class Normed(Generic[T], nn.LayerNorm):  # noqa: PYI059 (as some models are)
    """A part of it, for another reason."""


class Classifier(Scored):
    def score(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x)


def test_models_whose_first_base_is_no_module_are_compressed_as_others(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, model = torch.randn(16, 4), Classifier().eval()
    pruning = {"align": 1, "living_norms": True}
    items = [
        {"algorithm": "neuron_pruning", "pruning_init": 0.5, "params": pruning},
        {"algorithm": "quantization"},
    ]
    controller, network = nncfx.create_compressed_model(
        model, {"compression": items}, x, calibration_batches=[x]
    )
    assert isinstance(network, NNCFNetwork)
    assert isinstance(network, Classifier)
    assert network.train().trained
    assert all(hook.hook.training for hook in network.nncf.hooks)
    assert not network.eval().trained
    expected = network(x)
    assert torch.equal(copy.deepcopy(network)(x), expected)
    again = pickle.loads(pickle.dumps(network))  # noqa: S301 (what was just pickled)
    assert torch.equal(again(x), expected)
    nncfx.save(tmp_path / "training.safetensors", network, controller)
    _, loaded = nncfx.load(tmp_path / "training.safetensors", Classifier().eval())
    assert torch.equal(loaded(x), expected)
    stripped = controller.strip()
    assert torch.allclose(nncfx.thin(stripped, living_norms=True).model(x), stripped(x), atol=1e-6)
    assert type(nncfx.unwrap(network)) is Classifier


def test_such_a_class_finds_methods_in_the_mixin_and_then_in_its_own_order() -> None:
    model = Classifier()
    order = type(model).__mro__
    change_class(model, ClassSpec(Classifier, NNCFNetwork))
    assert type(model).__mro__[1:] == (NNCFNetwork, HookedModule, *order)

    class Derived(type(model)):  # type: ignore[misc]  # a class that is made at run time
        pass

    assert Derived.__mro__ == (Derived, *type(model).__mro__)
    with pytest.raises(TypeError, match="abstract"):
        Scored()


def test_a_pickle_of_before_a_class_could_take_arguments_loads() -> None:
    """It holds what the dynamic class is made of, and nothing else."""
    x = torch.randn(2, 4)
    _, model = nncfx.create_compressed_model(
        nn.Sequential(nn.Linear(4, 3)),
        {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}},
        x,
    )
    function, (parts, args), *_ = model[0].__reduce_ex__(2)
    assert args == ()
    assert type(function(parts)) is type(model[0])


def test_a_copy_of_a_graph_module_has_a_class_of_the_same_name() -> None:
    """Addresses begin with it, and torch calls every copy a GraphModule."""
    model = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    wrapped = nncfx.wrap(model, torch.ones(1, 2))
    for copied in (copy.deepcopy(wrapped), copy_of(wrapped), copy_of(unwrap(wrapped))):
        assert type(copied).__name__ == "Sequential"


class Plain(nn.Module):
    """A convolution and its activation, in the forward of the class."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)
        self.scale = nn.Parameter(torch.rand(4, 1, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x) * self.scale) + x[..., 1:-1, 1:-1]


class Fused(Plain):
    """The same in another method, which its instances run as their forward, as in YOLO."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = self.forward_fuse

    def forward_fuse(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x) * self.scale) + x[..., 1:-1, 1:-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


def pair() -> tuple[nn.Module, nn.Module, torch.Tensor]:
    """Return a network of `Plain`, and one of `Fused` with its weights."""
    torch.manual_seed(0)
    nets = [
        nn.Sequential(nn.Conv2d(3, 4, 1), make(), nn.Conv2d(4, 2, 1)) for make in (Plain, Fused)
    ]
    nets[1].load_state_dict(nets[0].state_dict())
    return nets[0].eval(), nets[1].eval(), torch.randn(2, 3, 8, 8)


def copied(model: nn.Module, _: Path) -> nn.Module:
    return copy.deepcopy(model)


def pickled(model: nn.Module, _: Path) -> nn.Module:
    made: nn.Module = pickle.loads(pickle.dumps(model))  # noqa: S301 (made here)
    return made


def saved(model: nn.Module, path: Path) -> nn.Module:
    nncfx.save(path / "model.nncfx", model)
    return nncfx.load(path / "model.nncfx", pair()[1])[-1]


@pytest.mark.parametrize("again", [copied, pickled, saved])
def test_a_method_that_instances_run_as_forward_has_hooks(
    again: Callable[[nn.Module, Path], nn.Module], tmp_path: Path
) -> None:
    plain, fused, x = pair()
    expected = nncfx.quantize(plain, [x])(x)
    quantized = nncfx.quantize(fused, [x])
    sites = {str(one.site) for one in quantized.nncf.hooks}
    assert any("Fused[1]/relu_0" in one for one in sites)
    assert torch.equal(quantized(x), expected)
    assert torch.equal(again(quantized, tmp_path)(x), expected)
    assert unwrap(quantized)[1].forward.__func__ is Fused.forward_fuse
