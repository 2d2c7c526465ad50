"""Example inputs of a run."""

from collections import UserDict

import torch

from nncfx.compressor.evaluation.examples import one_example


def test_one_example_cuts_the_batch_and_nothing_else() -> None:
    scale = torch.ones(3)
    x, cut_scale, number = one_example((torch.ones(4, 2), scale, 9))
    assert x.shape == (1, 2)
    assert cut_scale is scale
    assert number == 9


def test_one_example_of_a_mapping_that_is_no_dict_is_cut() -> None:
    batch = UserDict(x=torch.ones(4, 2), names=["a", "b"])
    assert one_example(batch)["x"].shape == (1, 2)
