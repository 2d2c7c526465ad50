"""Masks as bits: what is packed comes back, and multiplies as it did."""

import numpy as np
import pytest
import torch

from nncfx.controllers.masks.packed_bits import bit_count, masked, packed_bits, unpacked_bits

SIZES = [0, 1, 7, 8, 9, 131_071, 131_072, 131_073, 300_001]


def mask_of(size: int) -> torch.Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(size)) > 0.5


@pytest.mark.parametrize("size", SIZES)
def test_bits_are_those_of_numpy(size: int) -> None:
    mask = mask_of(size)
    expected = np.packbits(mask.numpy(), bitorder="little")
    assert packed_bits(mask).numpy().tolist() == expected.tolist()
    assert int(bit_count(packed_bits(mask))) == np.count_nonzero(mask.numpy())
    assert torch.equal(unpacked_bits(packed_bits(mask), mask.shape).bool(), mask)


def test_views_are_packed_in_their_own_order() -> None:
    mask = mask_of(24).view(2, 3, 4)
    assert torch.equal(packed_bits(mask.movedim(0, 2)), packed_bits(mask.movedim(0, 2).clone()))
    row = mask[0, 0].expand(2, 3, 4)
    assert torch.equal(packed_bits(row), packed_bits(row.clone()))
    assert packed_bits(torch.tensor(5.0).expand(3, 3)).tolist() == [255, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_product_and_its_gradient_are_those_of_floats(dtype: torch.dtype) -> None:
    mask = mask_of(300_001)
    weight = torch.randn(300_001).to(dtype).requires_grad_()
    found = masked(weight, packed_bits(mask))
    expected = weight * mask.to(dtype)
    assert found.dtype == dtype
    assert torch.equal(found, expected)
    (ours,) = torch.autograd.grad(found.square().sum(), weight)
    (theirs,) = torch.autograd.grad(expected.square().sum(), weight)
    assert torch.equal(ours, theirs)


def test_compiled_products_equal_eager_ones() -> None:
    weight, bits = torch.randn(20), packed_bits(mask_of(20))
    compiled = torch.compile(masked, fullgraph=True, backend="eager")
    assert torch.equal(compiled(weight, bits), masked(weight, bits))
