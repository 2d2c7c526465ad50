"""One number out of what a user's function returns."""

import numpy as np
import pytest
import torch

from nncfx.objectives.number import one_number


@pytest.mark.parametrize(
    "value",
    [
        *(0.25, np.float32(0.25), np.array(0.25), np.array([0.25]), np.array([[0.25]])),
        *(torch.tensor(0.25), torch.tensor([0.25], requires_grad=True)),
    ],
)
def test_an_array_of_one_element_is_a_number(value: object) -> None:
    assert one_number(value) == 0.25


@pytest.mark.parametrize(
    "value", [None, [0.25], {"loss": 0.25}, np.array([1.0, 2.0]), torch.ones(2), torch.ones(0)]
)
def test_nothing_and_several_numbers_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        one_number(value)
