"""Promises of nncfx.graph.operations."""

import copy
import pickle

import pytest

from nncfx.graph import Operation, TensorInfo

CONV = Operation(
    address="Net/Conv2d[conv]/conv2d_0",
    scope="Net/Conv2d[conv]",
    function="conv2d",
    call_number=0,
    index=0,
    module="conv",
    module_type="Conv2d",
    inputs=(TensorInfo((1, 3, 8, 8), "float32"), TensorInfo((4, 3, 3, 3), "float32"), None),
    outputs=(TensorInfo((1, 4, 6, 6), "float32"),),
    parameters={1: "conv.weight"},
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
    relu = Operation("Net/relu_0", "Net", "relu", 0, 0, "", "Net", (info,), (info,))
    assert dict(relu.parameters) == {}
