"""Inputs go to the model by name or by order, and what does not fit is named."""

import re
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.protocol.named_inputs import InputSpec, examples_in, named_arrays

IMAGE = InputSpec("image", (None, 3), "float32")
IDS = InputSpec("ids", (None,), "int64")


def test_a_tuple_goes_by_order_and_a_mapping_by_name() -> None:
    image, ids = torch.ones(2, 3), torch.arange(2)
    by_order = named_arrays((image, ids), [IMAGE, IDS])
    by_name = named_arrays({"ids": ids, "image": image}, [IMAGE, IDS])
    assert list(by_order) == list(by_name) == ["image", "ids"]
    np.testing.assert_array_equal(by_order["ids"], by_name["ids"])


def test_an_input_of_none_counts_as_not_given_in_both_forms() -> None:
    image, ids = torch.ones(2, 3), torch.arange(2)
    by_order = named_arrays((image, None, ids), [IMAGE, IDS])
    by_name = named_arrays({"image": image, "mask": None, "ids": ids}, [IMAGE, IDS])
    assert list(by_order) == list(by_name) == ["image", "ids"]


def test_nested_inputs_are_flattened_in_order() -> None:
    arrays = named_arrays(([torch.ones(2, 3), torch.arange(2)],), [IMAGE, IDS])
    assert arrays["ids"].tolist() == [0, 1]


def test_a_python_number_takes_the_type_of_its_input() -> None:
    assert named_arrays((3,), [InputSpec("n", (), "int64")])["n"].dtype == np.int64


def test_a_transposed_tensor_becomes_contiguous() -> None:
    array = named_arrays(torch.ones(3, 2).T, [IMAGE])["image"]
    assert array.flags.c_contiguous


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_floats_of_16_bits_go_into_float32(dtype: torch.dtype) -> None:
    image = torch.tensor([[1.5, 2.0, 1 / 3]]).to(dtype)
    (array,) = named_arrays(image, [IMAGE]).values()
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, image.float().numpy())


def test_bfloat16_is_refused_where_the_model_takes_another_type() -> None:
    halves = InputSpec("image", (None, 3), "float16")
    with pytest.raises(RuntimeFailure, match="'image' is bfloat16, which numpy does not have"):
        named_arrays(torch.ones(1, 3).bfloat16(), [halves])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"imagee": torch.ones(1, 3)},
            "no input 'imagee'; its inputs are 'image', 'ids'. Did you",
        ),
        (
            {"image": torch.ones(1, 3), "scale": 0.5},
            "no input 'scale'; its inputs are 'image', 'ids'. It is 0.5, which a file has as a co",
        ),
        ({"image": torch.ones(1, 3)}, "Input 'ids' of the model is not given"),
        (torch.ones(1, 3), "has 2 input(s), 'image', 'ids', but 1 came"),
        (
            (torch.ones(1, 4), torch.ones(1)),
            "'image' has shape [1, 4], but the model takes [?, 3]",
        ),
        ((torch.ones(3), torch.ones(1)), "'image' has shape [3], but the model takes [?, 3]"),
        ((torch.ones(1, 3), torch.ones(1)), "'ids' is float32, but the model takes int64."),
        ((torch.ones(1, 3).double(), torch.ones(1)), "'image' is float64"),
    ],
)
def test_what_does_not_fit_is_named(inputs: Any, message: str) -> None:  # noqa: ANN401 (any inputs)
    with pytest.raises(RuntimeFailure, match=re.escape(message)):
        named_arrays(inputs, [IMAGE, IDS])


def test_examples_are_counted_along_axis_0_of_the_first_tensor() -> None:
    assert examples_in({"flag": True, "x": [torch.ones(6, 2)]}) == 6
    assert examples_in(UserDict(names=["a", "b"], x=torch.ones(4, 2))) == 4
    assert examples_in((torch.tensor(1.0), 3)) == 1
