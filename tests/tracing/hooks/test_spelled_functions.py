"""Promises of nncfx.tracing.hooks.spelled_functions."""

import pytest
import torch
from torch.nn import functional as F

from nncfx.tracing.hooks.spelled_functions import is_known_function, spelled_functions


@pytest.mark.parametrize("name", ["relu", "relu_", "conv2d", "__add__", "T", "unflatten"])
def test_what_graphs_name_is_known(name: str) -> None:
    assert is_known_function(name)


def test_what_torch_does_not_have_is_unknown() -> None:
    assert not is_known_function("rleu")


def test_functions_are_found_by_the_names_of_graphs() -> None:
    assert F.conv2d in spelled_functions()["conv2d"]
    assert torch.Tensor.add in spelled_functions()["__add__"]  # as the operator
    assert torch.mm in spelled_functions()["mm"]
