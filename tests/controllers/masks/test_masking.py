"""Mask hooks and sets of them."""

import pytest
import torch
from torch import nn

from nncfx.controllers import MaskHook, MaskSet
from nncfx.errors import CompressionError
from nncfx.tracing import Insertion, WeightSite


def test_ones_leave_a_weight_bitwise_as_it_is() -> None:
    weight = torch.tensor([0.0, -0.0, 1e-45, -3e38, torch.inf, torch.nan])
    masked = MaskHook.along(weight, {0})(weight)
    assert torch.equal(masked.view(torch.int32), weight.view(torch.int32))


def test_a_masked_entry_gets_no_gradient() -> None:
    weight = torch.ones(2, requires_grad=True)
    MaskHook(torch.tensor([1.0, 0.0]))(weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_hook_follows_the_dtype_of_its_model(dtype: torch.dtype) -> None:
    hook = MaskHook.along(torch.ones(2), {0}).to(dtype)
    assert hook(torch.ones(2, dtype=dtype)).dtype == dtype


def test_a_mask_along_some_axes_is_as_small_as_it_can_be() -> None:
    assert MaskHook.along(torch.ones(4, 3, 2), {0}).mask.shape == (4, 1, 1)


def test_parameters_without_a_mask_are_whole_again() -> None:
    masks = MaskSet([("a", MaskHook(torch.zeros(2))), ("b", MaskHook(torch.ones(3)))])
    masks.set({"b": torch.tensor([True, False, False])})
    assert masks.removed("a", torch.Size([2])) == 0
    assert masks.removed("b", torch.Size([3])) == 2


def test_removed_counts_the_entries_of_the_parameter_not_of_the_mask() -> None:
    masks = MaskSet([("a", MaskHook(torch.tensor([[1.0], [0.0]])))])
    assert masks.removed("a", torch.Size([2, 5])) == 5


def test_a_mask_without_a_hook_is_an_error() -> None:
    with pytest.raises(CompressionError, match=r"masks for \['b'\], where no hook stands"):
        MaskSet([("a", MaskHook(torch.ones(1)))]).set({"b": torch.ones(1, dtype=torch.bool)})


def test_hooks_on_a_shared_weight_are_found_under_its_first_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    hooks = [MaskHook(torch.ones(2, 2)) for _ in range(3)]
    names = ("0.weight", "1.weight", "1.bias")
    pairs = zip(names, hooks, strict=True)
    masks = MaskSet.of(model, [Insertion(WeightSite.of(n), hook, 0, "x") for n, hook in pairs])
    assert {name: len(found) for name, found in masks.hooks.items()} == {
        "0.weight": 2,
        "1.bias": 1,
    }


def test_lifted_masks_come_back_also_after_an_error() -> None:
    hook = MaskHook(torch.tensor([1.0, 0.0]))
    masks = MaskSet([("a", hook)])
    seen: list[float] = []
    with pytest.raises(ZeroDivisionError), masks.lifted():
        seen = [*hook.mask.tolist(), 1 / 0]
    with masks.lifted():
        seen = hook.mask.tolist()
    assert seen == [1, 1]
    assert hook.mask.tolist() == [1, 0]
