"""The quick copy of a module is the copy that `copy.deepcopy` makes."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from nncfx.tracing.calls.model_copy import copied

# ruff: noqa: ANN401 (modules hold anything)


class Holder(nn.Module):
    """Holds what modules hold, and more: tables, lists that refer to one another, odd objects."""

    def __init__(self) -> None:
        """Make one of each."""
        super().__init__()
        self.layer = nn.Linear(2, 3)
        self.same = self.layer
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("passing", torch.ones(3), persistent=False)
        self.sizes = [1, (2, 3), {"a": [4]}]
        self.again = self.sizes
        self.table: OrderedDict[str, Any] = OrderedDict(x=self.sizes, y=None)
        self.pair = (self.layer, 1.5)
        self.words = {"one", "two"}
        self.act = torch.relu
        self.kind = nn.ReLU
        self.generator = torch.Generator().manual_seed(3)
        self.layer.register_forward_hook(self.seen)

    def seen(self, module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
        """Double a result."""
        assert module is self.layer
        assert args
        return 2 * result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return n x 3."""
        return self.act(self.layer(x)) * self.scale


class OwnCopy(nn.Linear):
    """Says itself how it is copied."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnCopy":
        """Return one of another size."""
        return OwnCopy(1, 1)


def seen_by_deepcopy(model: nn.Module) -> list[Any]:
    """Return a picture of all that a module holds, with what is the same object told."""
    numbers: dict[int, int] = {}

    def picture(value: Any) -> Any:  # noqa: PLR0911 (one line per kind)
        if isinstance(value, (bool, int, float, str, bytes, type(None), type)):
            return value
        if id(value) in numbers:
            return f"object {numbers[id(value)]}"
        numbers[id(value)] = len(numbers)
        if isinstance(value, torch.Tensor):
            kind = type(value).__name__
            return (kind, value.tolist(), value.dtype, value.requires_grad)
        if isinstance(value, nn.Module):
            return (type(value).__name__, picture(vars(value)))
        if isinstance(value, dict):
            return (type(value), [(picture(key), picture(one)) for key, one in value.items()])
        if isinstance(value, (list, tuple)):
            return (type(value), [picture(one) for one in value])
        return sorted(value) if isinstance(value, set) else type(value)

    return [picture(model)]


def weight_normed() -> nn.Module:
    """Return a module whose weight is made from two parameters."""
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 2)), nn.ReLU())


@pytest.mark.parametrize("make", [Holder, weight_normed, lambda: nn.LSTM(2, 3), nn.ReLU])
def test_copy_holds_what_deepcopy_holds(make: Callable[[], nn.Module]) -> None:
    """Types, values, order and what is shared are those of `copy.deepcopy`."""
    model = make()
    assert seen_by_deepcopy(copied(model, {})) == seen_by_deepcopy(copy.deepcopy(model))


def test_copy_shares_nothing_that_can_change() -> None:
    """Changing the copy leaves the original; a bound hook is bound to the copy."""
    model = Holder()
    other = copied(model, {})
    assert isinstance(other, Holder)
    other.layer.weight.data.zero_()
    other.sizes.append(5)
    assert other.again == other.sizes != model.sizes
    assert model.layer.weight.abs().sum() > 0
    x = torch.ones(1, 2)
    expected = torch.relu(2 * other.layer.bias) * other.scale
    assert torch.equal(other(x), expected[None])  # its hook finds the copy's layer


def test_memo_stands_in_for_what_it_names() -> None:
    """A tensor of the memo lands at each of its places."""
    model = Holder()
    small = nn.Parameter(torch.zeros(1, 2))
    other = copied(model, {id(model.layer.weight): small})
    assert other.get_submodule("same").weight is small
    assert model.layer.weight.shape == (3, 2)


def test_computed_tensors_come_along() -> None:
    """What a forward has left in an attribute is copied by value, also in a list."""
    model = nn.Linear(2, 2)
    vars(model)["last"] = [model(torch.ones(1, 2))]
    (other,) = vars(copied(model, {}))["last"]
    assert other.is_leaf
    assert torch.equal(other, vars(model)["last"][0])


class OwnState(nn.Sequential):
    """Says itself what its state is, as a class does that leaves a handle out."""

    def __getstate__(self) -> dict[str, Any]:
        """Return all of it."""
        return dict(vars(self))


def test_computed_tensors_come_along_below_a_class_that_copies_itself() -> None:
    """What a module deep inside such a class has left in an attribute is copied as well."""
    model = OwnState(nn.Sequential(nn.Linear(2, 2)))
    vars(model[0][0])["last"] = {"result": model(torch.ones(1, 2))}
    other = vars(copied(model, {})[0][0])["last"]["result"]
    assert other.is_leaf
    assert torch.equal(other, vars(model[0][0])["last"]["result"])


def test_a_class_that_copies_itself_does_so() -> None:
    """`__deepcopy__` of a module inside is called."""
    assert copied(nn.Sequential(OwnCopy(3, 3)), {})[0].in_features == 1


def test_numbers_that_share_their_memory_share_it_in_the_copy() -> None:
    model = nn.Module()
    model.register_buffer("count", torch.tensor(3))
    model.register_buffer("seen", model.get_buffer("count").detach())
    model.register_buffer("other", torch.tensor(3))
    made = copied(model, {})
    made.get_buffer("count").add_(1)
    assert [int(one) for one in made.buffers()] == [4, 4, 3]
    assert [int(one) for one in model.buffers()] == [3, 3, 3]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_come_along(layout: torch.layout) -> None:
    module = nn.Module()
    module.register_buffer("edges", torch.eye(3).to_sparse(layout=layout))
    made = copied(module, {}).edges
    assert made is not module.edges
    assert made.layout == layout
    assert torch.equal(made.to_dense(), torch.eye(3))
