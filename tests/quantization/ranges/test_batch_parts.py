"""Batches with large activations are run in parts."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.quantization.ranges import batch_parts
from nncfx.quantization.ranges.batch_parts import in_parts
from small_models import Function

_OF_AN_IMAGE = 4 * 8 * 8
IMAGES = torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def convolved(behind: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a convolution of 4 x 8 x 8 numbers an image, and what `behind` makes of them."""
    torch.manual_seed(0)
    return Function(lambda m, x: behind(m.layer(x).relu()), layer=nn.Conv2d(3, 4, 3, padding=1))


@pytest.fixture(autouse=True)
def _room_for_five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_parts, "_FITTING", 5 * _OF_AN_IMAGE + 1)
    monkeypatch.setattr(batch_parts, "_FEW", 1)


def test_parts_are_as_long_as_their_largest_activation_allows() -> None:
    model = nncfx.wrap(convolved(lambda x: x.mean((2, 3))), IMAGES)
    assert [len(one) for one in in_parts(model, iter([IMAGES, IMAGES[:3]]))] == [4, 4, 4, 3]
    found = in_parts(model, [IMAGES])
    assert isinstance(found, list)
    assert torch.equal(torch.cat(found), IMAGES)


@pytest.mark.parametrize(("room", "length"), [(9, 6), (4, 4), (1, 2)])
def test_parts_are_not_shorter_than_a_few_where_those_are_not_large(
    room: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_parts, "_FITTING", 2 * _OF_AN_IMAGE)
    monkeypatch.setattr(batch_parts, "_FEW", 6)
    monkeypatch.setattr(batch_parts, "_LARGE", room * _OF_AN_IMAGE)
    model = nncfx.wrap(convolved(torch.relu), IMAGES)
    assert [len(one) for one in in_parts(model, [IMAGES])] == [length] * (12 // length)


@pytest.mark.parametrize(
    "behind",
    [lambda x: x - x.mean(0), lambda x: x.view(3, 4, -1).mean(1), lambda x: x.flatten(1).T],
    ids=["all examples", "frames of a film", "another axis"],
)
def test_batches_stay_whole_where_examples_are_not_along_axis_0(
    behind: Callable[[Tensor], Tensor],
) -> None:
    model, batches = nncfx.wrap(convolved(behind), IMAGES), [IMAGES]
    assert in_parts(model, batches) is batches


def test_batches_stay_whole_where_one_example_was_traced() -> None:
    model, batches = nncfx.wrap(convolved(torch.relu), IMAGES[:1]), [IMAGES]
    assert in_parts(model, batches) is batches


def test_ranges_and_biases_are_those_of_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model = convolved(lambda x: x.mean((2, 3)))
    found = nncfx.quantize(model, [IMAGES]).state_dict()
    monkeypatch.setattr(batch_parts, "_FITTING", 1 << 30)
    whole = nncfx.quantize(model, [IMAGES]).state_dict()
    assert found.keys() == whole.keys()
    for name, one in whole.items():
        # a batch is run with the biases that those before it have shifted
        most = 3e-4 if name.endswith("bias") else 0.0
        torch.testing.assert_close(found[name], one, rtol=0.0, atol=most)
