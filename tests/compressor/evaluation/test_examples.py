"""Example inputs of a run."""

from collections import UserDict

import torch

from nncfx.compressor.evaluation.examples import batch_size, one_example


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


def test_one_example_of_a_mapping_that_is_no_dict_is_cut() -> None:
    batch = UserDict(x=torch.ones(4, 2), names=["a", "b"])
    assert batch_size(batch) == 4
    assert one_example(batch)["x"].shape == (1, 2)
