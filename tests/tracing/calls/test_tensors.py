"""Promises of nncfx.tracing.calls.tensors and of substitution, which counts ports alike."""

from collections import namedtuple
from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nncfx.tracing.calls.tensors import describe, own_tensors, tensors_in
from nncfx.tracing.hooks.chain import substitute

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 (torch's own are untyped)

leaves = st.one_of(
    st.integers(0, 9).map(torch.tensor), st.sampled_from([None, 1, "a", torch.Size([1])])
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)


@given(values)
def test_replacing_no_port_changes_nothing(value: object) -> None:
    replaced, ports = substitute(value, {})
    assert [id(one) for one in tensors_in(replaced)] == [id(one) for one in tensors_in(value)]
    assert ports == len(list(tensors_in(value)))
    assert type(replaced) is type(value)


@given(values, st.integers(0, 7))
def test_a_port_is_the_tensor_at_that_position(value: object, port: int) -> None:
    expected = [
        tensor + 1 if number == port else tensor for number, tensor in enumerate(tensors_in(value))
    ]
    replaced, _ = substitute(value, {port: lambda tensor: tensor + 1})
    assert [int(one) for one in tensors_in(replaced)] == [int(one) for one in expected]


def test_what_torch_returns_by_name_keeps_its_type() -> None:
    value = torch.tensor([[1.0, 2.0]]).max(1)
    replaced, _ = substitute(value, {0: lambda tensor: tensor * 2})
    assert type(replaced) is type(value)
    assert replaced.values.item() == 4


def test_fields_of_a_dataclass_come_in_order() -> None:
    @dataclass
    class Output:
        first: torch.Tensor
        rest: dict[str, torch.Tensor]

    one, two = torch.zeros(1), torch.zeros(2)
    assert [id(tensor) for tensor in tensors_in(Output(one, {"two": two}))] == [id(one), id(two)]


def test_a_field_that_its_class_refuses_to_read_is_found() -> None:
    """Configs of transformers refuse what differs by layer (Gemma 4's head_dim)."""

    @dataclass
    class Config:
        head_dim: torch.Tensor

        def __getattribute__(self, name: str) -> object:
            if name == "head_dim":
                raise RuntimeError("may vary across layers")
            return super().__getattribute__(name)

    @dataclass(slots=True)
    class Slots:
        first: torch.Tensor

    one = torch.zeros(1)
    assert tensors_in(Config(one)) == tensors_in(Slots(one)) == [one]


def test_a_tensor_is_described_by_shape_and_dtype() -> None:
    info = describe(torch.zeros(2, 0, dtype=torch.bfloat16))
    assert (info.shape, info.dtype) == ((2, 0), "bfloat16")


def test_own_tensors_are_the_modules_not_its_childrens() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    assert own_tensors(model) == {}
    assert list(own_tensors(model[0])) == [
        *("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    ]
