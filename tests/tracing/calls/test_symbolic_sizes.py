"""Integers of modules remember their names while channels are followed."""

import copy
import pickle

import pytest
import torch
from torch import nn

from nncfx.tracing.calls.symbolic_sizes import NamedInteger, named_integers


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.width, self.flag = 6, True
        self.inner = nn.Linear(2, 3)


def test_integers_have_names_inside_and_are_plain_again_after() -> None:
    model = Model()
    with named_integers(model):
        width = model.width
        assert (width.module, width.attribute, width.whole) == ("", "width", 6)
        assert model.inner.in_features.module == "inner"
    assert type(model.width) is int


def test_a_flag_is_no_integer() -> None:
    model = Model()
    with named_integers(model):
        assert model.flag is True


def test_integers_are_plain_again_after_an_error() -> None:
    model = Model()
    with pytest.raises(ValueError, match="wrong"), named_integers(model):
        raise ValueError("wrong")
    assert type(model.width) is int


def test_a_part_keeps_the_name_and_a_product_does_not() -> None:
    six = NamedInteger.named(6, "", "width", 6)
    assert (six // 2, (six // 2).attribute, (six // 2).whole) == (3, "width", 6)
    assert type(six * 2) is int
    assert type(six // 4.0) is float


def test_torch_takes_it_as_a_size() -> None:
    assert torch.zeros(6).view(NamedInteger.named(3, "", "a", 3), -1).shape == (3, 2)


def test_copies_are_plain() -> None:
    six = NamedInteger.named(6, "", "width", 6)
    assert type(copy.deepcopy(six)) is int
    assert type(pickle.loads(pickle.dumps(six))) is int  # noqa: S301 (what was just written)
