"""Encode quantized matrices as blocks of GGUF, each with 32 weights and their scale."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.quantization.packing.layouts import float4_nibbles, power_of_two_bytes, unsigned
from nncfx.storage.models.integer_tensor import IntegerTensor

BLOCK: Final = 32
"""Consecutive weights of a row that share a scale."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class BlockType:
    """A block format of GGUF.

    Attributes:
        name: Name in gguf's `GGMLQuantizationType`.
        file_type: Name in gguf's `LlamaFileType` of a file with mostly this type.
        bytes: Bytes of a block.
        write: Returns blocks, b x bytes, from codes, b x 32, and scales and zero points, b x 1.
    """

    name: str
    file_type: str
    bytes: int
    write: Callable[[Tensor, Tensor, Tensor], Tensor]

    def rows(self, stored: IntegerTensor) -> Bytes:
        """Return a matrix, o x i, as o rows of bytes.

        Scales are rounded to float16, except those of MXFP4.

        Raises:
            ArgumentError: the weights of a scale are not a multiple of 32, or a scale exceeds the
                range of float16.
        """
        outputs, inputs = stored.values.shape
        shared = stored.values.numel() // stored.scale.numel()
        if inputs % BLOCK or shared % BLOCK:
            raise ArgumentError(
                f"A matrix of {outputs} x {inputs} with groups of {shared} does not fit blocks "
                f"of {BLOCK}, which GGUF needs. Quantize with a group_size that is a multiple."
            )
        codes = unsigned(stored.values, stored).reshape(-1, BLOCK)
        scale, zero = (
            one.reshape(-1, 1).repeat_interleave(shared // BLOCK, 0)
            for one in (stored.scale.float(), unsigned(stored.zero_point, stored))
        )
        if not bool((scale <= torch.finfo(torch.float16).max).all()):
            raise ArgumentError(f"A scale is {scale.max():.3g}, above what float16 holds.")
        found: Bytes = self.write(codes, scale, zero).reshape(outputs, -1).numpy()
        return found


def _half(value: Tensor) -> Tensor:
    return value.to(torch.float16).view(torch.uint8)


def _nibbles(codes: Tensor) -> Tensor:
    """Return two codes per byte: the first half of a block in the low bits, the second in high."""
    low, high = codes.chunk(2, 1)
    return (low | high << 4).to(torch.uint8)


def _q8_0(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return torch.cat([_half(scale), (codes - zero).to(torch.int8).view(torch.uint8)], 1)


def _q4_0(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    del zero  # 8 in all blocks
    return torch.cat([_half(scale), _nibbles(codes)], 1)


def _q4_1(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return torch.cat([_half(scale), _half(-scale * zero), _nibbles(codes)], 1)


def _mxfp4(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    del zero
    return torch.cat([power_of_two_bytes(scale), _nibbles(float4_nibbles(codes))], 1)


_TYPES: Final[dict[tuple[int, torch.dtype, str | None], BlockType]] = {
    (8, torch.int8, None): BlockType("Q8_0", "MOSTLY_Q8_0", 34, _q8_0),
    (4, torch.int8, None): BlockType("Q4_0", "MOSTLY_Q4_0", 18, _q4_0),
    (4, torch.uint8, None): BlockType("Q4_1", "MOSTLY_Q4_1", 20, _q4_1),
    (4, torch.uint8, "float4_e2m1"): BlockType("MXFP4", "MOSTLY_MXFP4_MOE", 17, _mxfp4),
}
"""Types by bits, dtype of the codes, and codebook.

Source: ggml-common.h and gguf's quants.py (0.19).
"""


def block_type(stored: IntegerTensor) -> BlockType:
    """Return the block type for `stored`.

    Raises:
        ArgumentError: GGUF has no such type.
    """
    found = _TYPES.get((stored.bits, stored.values.dtype, stored.codebook))
    if found is None:
        raise ArgumentError(
            f"GGUF has no type for weights of {stored.values.dtype}. Quantize to 'int8', 'int4', "
            "'uint4' or 'mxfp4'."
        )
    return found
