"""Promises of nncfx.graph.operations."""

import copy
import pickle

import pytest

from nncfx.graph import Operation, TensorInfo
from nncfx.graph.operations import OwnParameters

CONV = Operation(
    address="Net/Conv2d[conv]/conv2d_0",
    function="conv2d",
    call_number=0,
    index=0,
    module="conv",
    module_type="Conv2d",
    inputs=(TensorInfo((1, 3, 8, 8), "float32"), TensorInfo((4, 3, 3, 3), "float32"), None),
    outputs=(TensorInfo((1, 4, 6, 6), "float32"),),
    parameters=OwnParameters("conv", ((1, "weight"),)),
)


@pytest.mark.parametrize(("shape", "elements"), [((), 1), ((2, 3), 6), ((4, 0), 0)])
def test_elements_are_the_product_of_the_extents(shape: tuple[int, ...], elements: int) -> None:
    assert TensorInfo(shape, "int8").elements == elements


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301 (our own bytes)
def test_an_operation_equals_its_copy(copied: object) -> None:
    assert callable(copied)
    assert copied(CONV) == CONV


def test_an_operation_is_hashable() -> None:
    assert len({CONV, copy.deepcopy(CONV)}) == 1


def test_without_parameters_there_is_an_empty_mapping() -> None:
    info = TensorInfo((1,), "float32")
    relu = Operation("Net/relu_0", "relu", 0, 0, "", "Net", (info,), (info,))
    assert dict(relu.parameters) == {}


def test_own_parameters_are_the_mapping_that_they_spell() -> None:
    own = OwnParameters("conv", ((1, "weight"), (2, "bias")))
    assert own == {1: "conv.weight", 2: "conv.bias"}
    assert list(own) == [1, 2]
    assert 0 not in own
    with pytest.raises(KeyError, match="0"):
        own[0]


def test_parameters_of_the_root_have_no_dot() -> None:
    assert OwnParameters("", ((1, "weight"),))[1] == "weight"


def test_the_scope_is_what_comes_before_the_call() -> None:
    assert CONV.scope == "Net/Conv2d[conv]"
