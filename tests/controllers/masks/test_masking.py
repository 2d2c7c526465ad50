"""Mask hooks and sets of them."""

from typing import Any

import pytest
import torch
from torch import nn, optim

from nncfx.algorithms.movement_sparsity.mask import MovementMask
from nncfx.controllers import MaskHook, MaskSet
from nncfx.errors import CompressionError
from nncfx.lc.penalty import CompressedWeight
from nncfx.tracing import Insertion, WeightSite

EMA: Any = optim.swa_utils.get_ema_multi_avg_fn(0.6)


def test_ones_leave_a_weight_bitwise_as_it_is() -> None:
    weight = torch.tensor([0.0, -0.0, 1e-45, -3e38, torch.inf, torch.nan])
    masked = MaskHook.along(weight, {0})(weight)
    assert torch.equal(masked.view(torch.int32), weight.view(torch.int32))


def test_a_masked_entry_gets_no_gradient() -> None:
    weight = torch.ones(2, requires_grad=True)
    MaskHook(torch.tensor([1.0, 0.0]))(weight).sum().backward()
    assert weight.grad.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_hook_follows_the_dtype_of_its_model(dtype: torch.dtype) -> None:
    hook = MaskHook.along(torch.ones(2), {0}).to(dtype)
    assert hook(torch.ones(2, dtype=dtype)).dtype == dtype


def test_a_weight_that_is_gathered_in_another_dtype_keeps_it() -> None:
    """As FSDP's mixed precision has it: hooks stay in the dtype of the parameter."""
    weight = torch.ones(2, 2, dtype=torch.bfloat16)
    hooks = [
        MaskHook.along(torch.ones(2, 2), {0}),
        MovementMask(torch.ones(2, 2), [1, 1]),
        CompressedWeight(torch.ones(2, 2)).eval(),
    ]
    assert {hook(weight).dtype for hook in hooks} == {torch.bfloat16}


def test_a_mask_along_some_axes_is_as_small_as_it_can_be() -> None:
    assert MaskHook.along(torch.ones(4, 3, 2), {0}).shape == (4, 1, 1)


def test_parameters_without_a_mask_are_whole_again() -> None:
    masks = MaskSet([("a", MaskHook(torch.zeros(2))), ("b", MaskHook(torch.ones(3)))])
    masks.set({"b": torch.tensor([True, False, False])})
    assert masks.removed("a", torch.Size([2])) == 0
    assert masks.removed("b", torch.Size([3])) == 2


def test_removed_counts_the_entries_of_the_parameter_not_of_the_mask() -> None:
    masks = MaskSet([("a", MaskHook(torch.tensor([[1.0], [0.0]])))])
    assert masks.removed("a", torch.Size([2, 5])) == 5


def test_a_mask_without_a_hook_is_an_error() -> None:
    with pytest.raises(CompressionError, match=r"masks for \['b'\], where there is no hook"):
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
        seen = [*hook.keep().tolist(), 1 / 0]
    with masks.lifted():
        seen = hook.keep().tolist()
    assert seen == [1, 1]
    assert hook.keep().tolist() == [1, 0]


def large() -> tuple[torch.Tensor, MaskHook]:
    mask = (torch.rand(600, 500, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    return mask, MaskHook(mask)


def test_a_large_mask_takes_a_bit_an_entry() -> None:
    mask, hook = large()
    held = sum(one.numel() * one.element_size() for one in hook.buffers())
    assert held == mask.numel() // 8 + 8
    assert torch.equal(hook.keep(), mask.bool())
    assert hook.zeros() == int((mask == 0).sum())
    weight = torch.randn(600, 500)
    assert torch.equal(hook(weight), weight * mask)


def test_a_large_mask_reads_files_that_hold_floats() -> None:
    mask, hook = large()
    hook.put(None)
    assert hook.zeros() == 0
    hook.load_state_dict({"mask": mask})
    assert torch.equal(hook.keep(), mask.bool())
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict"):
        hook.load_state_dict({"mask": mask[:5]})


def test_a_hook_pickled_before_masks_were_packed_is_read() -> None:
    mask, _ = large()
    old = MaskHook(torch.ones(1))
    state = vars(old).copy()
    del state["shape"]
    state["_buffers"] = {"mask": mask}
    read = MaskHook.__new__(MaskHook)
    read.__setstate__(state)
    assert read.is_packed
    assert torch.equal(read.keep(), mask.bool())


def test_a_large_mask_that_was_averaged_is_an_error() -> None:
    _, hook = large()
    average = optim.swa_utils.AveragedModel(hook, multi_avg_fn=EMA, use_buffers=True)
    average.update_parameters(hook)
    hook.put(None)
    average.update_parameters(hook)
    with pytest.raises(CompressionError, match="was averaged with the weights"):
        average.eval()
    hook.put(torch.zeros(600, 1))
    assert hook.eval().zeros() == 300_000
