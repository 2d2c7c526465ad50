"""Store masks of zeros and ones with one bit per entry."""

from typing import Any, Final

import torch
from torch import Tensor
from typing_extensions import override

_BITS: Final = 8
_PIECE: Final = 1 << 18
"""Number of entries processed at a time, so they stay in the cache; a multiple of 8."""

_GATHER: Final = 0x0102040810204080
"""Multiplied by eight bytes of 0 or 1 (first lowest), it collects them as bits of the top byte."""


def packed_bits(mask: Tensor) -> Tensor:
    """Return `mask`, of any shape, as `ceil(n / 8)` bytes (uint8).

    Entry `8 i + j`, in row-major order, is bit j of byte i, which is 1 if the entry is not 0. Bits
    beyond the last entry are 0. Works on 262,144 entries at a time to save memory.

    >>> packed_bits(torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 1]))
    tensor([9, 1], dtype=torch.uint8)
    """
    packed = torch.empty(-(-mask.numel() // _BITS), dtype=torch.uint8, device=mask.device)
    is_one = mask.numel() > 0 and not any(mask.stride())
    flat = mask[(0,) * mask.ndim].expand(mask.numel()) if is_one else mask.detach().reshape(-1)
    for start in range(0, mask.numel(), _PIECE):
        stop = min(start + _PIECE, mask.numel())
        ones = (flat[start:stop] != 0).to(torch.uint8)
        ones = torch.nn.functional.pad(ones, (0, -len(ones) % _BITS)).view(torch.int64)
        packed[start // _BITS : -(-stop // _BITS)] = (ones * _GATHER >> 56) & 255
    return packed


def unpacked_bits(bits: Tensor, shape: torch.Size) -> Tensor:
    """Return the zeros and ones (uint8, of `shape`) that `packed_bits` packed into `bits`.

    >>> unpacked_bits(torch.tensor([9, 1], dtype=torch.uint8), torch.Size([3, 3])).tolist()
    [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    """
    # plain tensors only: compilers and fake tensors do not support the table
    if type(bits) is Tensor and bits.is_cpu and not torch.compiler.is_compiling():
        entries = _TABLE.index_select(0, bits.int()).view(torch.uint8)
    else:
        entries = _places(bits).flatten()
    return entries[: shape.numel()].view(shape)


def _places(bits: Tensor) -> Tensor:
    """Return the 8 bits of each byte, the lowest first."""
    return (bits[:, None] >> torch.arange(_BITS, dtype=torch.uint8, device=bits.device)) & 1


_BYTES: Final = torch.arange(256, device="cpu").to(torch.uint8)
_TABLE: Final = _places(_BYTES).view(torch.int64).flatten()
"""The bits of every byte as eight bytes of a 64-bit number; three times as fast as shifts."""


def bit_count(bits: Tensor) -> Tensor:
    """Return the number of ones in `bits` (uint8), as a scalar int64 tensor.

    >>> bit_count(torch.tensor([9, 1], dtype=torch.uint8))
    tensor(3)
    """
    count = torch.zeros((), dtype=torch.int64, device=bits.device)
    for piece in torch.split(bits, _PIECE):
        for place in range(_BITS):
            count += torch.count_nonzero(piece & (1 << place))
    return count


def masked(weight: Tensor, bits: Tensor) -> Tensor:
    """Return `weight` times the zeros and ones in `bits`, one per entry.

    >>> masked(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5], dtype=torch.uint8))
    tensor([1., 0., 3.])
    """
    if torch.compiler.is_compiling():  # compilers fuse it
        return weight * unpacked_bits(bits, weight.shape)
    if not (weight.requires_grad and torch.is_grad_enabled()):  # as in a backward pass
        return _product(weight, bits)
    found: Tensor = _Masked.apply(weight, bits)  # type: ignore[no-untyped-call]  # torch
    return found


def mask_in_place(weight: Tensor, bits: Tensor) -> None:
    """Replace a contiguous `weight` by what `masked` returns, without a second tensor.

    Args:
        weight: of n entries.
        bits: zeros and ones for the entries, in `ceil(n / 8)` bytes, as by `packed_bits`.
    """
    values = weight.detach().view(-1)
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        piece *= unpacked_bits(bits[start // _BITS : (start + _PIECE) // _BITS], piece.shape)


def _product(weight: Tensor, bits: Tensor) -> Tensor:
    product = torch.empty_like(weight, memory_format=torch.contiguous_format)
    values, into = weight.reshape(-1), product.view(-1)
    for start in range(0, len(values), _PIECE):
        piece = into[start : start + _PIECE]
        own = bits[start // _BITS : (start + _PIECE) // _BITS]
        # two passes, which are faster than a product of floats and bytes
        piece.copy_(unpacked_bits(own, piece.shape)).mul_(values[start : start + _PIECE])
    return product


class _Masked(torch.autograd.Function):
    """The product, computed piece by piece, so no mask of the weight's size is ever stored."""

    @staticmethod
    @override
    def forward(weight: Tensor, bits: Tensor) -> Tensor:
        return _product(weight, bits)

    @staticmethod
    @override
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        del output
        ctx.save_for_backward(inputs[1])

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return masked(grads[0], ctx.saved_tensors[0]), None
