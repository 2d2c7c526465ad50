"""Example inputs of a run."""

import pytest
import torch

from nncfx.compressor.examples import batch_size, first_inputs, one_example
from nncfx.errors import ArgumentError


def test_the_first_inputs_are_those_of_the_first_batch() -> None:
    x = torch.ones(2, 3)
    assert first_inputs([(x, 0), (2 * x, 1)]) is x


def test_an_empty_loader_has_no_example_inputs() -> None:
    with pytest.raises(ArgumentError, match="Pass `example_inputs`"):
        first_inputs([])


def test_the_batch_is_axis_0_of_the_first_tensor_found() -> None:
    assert batch_size({"n": 5, "x": [torch.ones(7, 2)]}) == 7


def test_without_a_tensor_of_axes_there_is_one_example() -> None:
    assert batch_size((torch.tensor(2.0), 3)) == 1


def test_one_example_cuts_the_batch_and_nothing_else() -> None:
    scale = torch.ones(3)
    x, cut_scale, number = one_example((torch.ones(4, 2), scale, 9))
    assert x.shape == (1, 2)
    assert cut_scale is scale
    assert number == 9
