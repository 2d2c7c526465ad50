"""Pack codes of weights (integers, float8, codebook indices) into bytes, and decode them."""

from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from nncfx.storage.models.codebooks import from_codes
from nncfx.storage.models.integer_tensor import IntegerTensor

_NIBBLE: Final = 4
_LOW: Final = 15
_E4M3: Final = torch.float8_e4m3fn
_E4M3_SHIFT: Final = 20
_E4M3_BITS: Final = -(2**31) + (0x7F << _E4M3_SHIFT)
_E4M3_FACTOR: Final = 2.0**120
"""Corrects the exponent bias of e4m3, 120 less than float32's, after its bits are shifted."""


@dataclass(frozen=True, kw_only=True)
class CodeFormat:
    """How one number of a weight is coded.

    Attributes:
        dtype: Dtype of the codes when each takes a byte.
        bits: 4 if two codes are packed in a byte; or 8.
        lowest: Added to a packed code to get a signed integer: 0 or -8.
        codebook: The codebook that the codes index, if any.
    """

    dtype: torch.dtype
    bits: int
    lowest: int
    codebook: str | None

    @classmethod
    def of(cls, stored: IntegerTensor) -> "CodeFormat":
        """Return the format of the codes of `stored`."""
        is_packed = stored.bits <= _NIBBLE
        signed = stored.values.dtype == torch.int8
        lowest = -(2 ** (_NIBBLE - 1)) if is_packed and signed else 0
        bits = _NIBBLE if is_packed else stored.bits
        return cls(dtype=stored.values.dtype, bits=bits, lowest=lowest, codebook=stored.codebook)

    @property
    def is_packed(self) -> bool:
        """Whether two codes share a byte."""
        return self.bits == _NIBBLE

    @property
    def is_integer(self) -> bool:
        """Whether numbers are codes minus a zero point."""
        return self.codebook is None and not self.dtype.is_floating_point

    def pack(self, values: Tensor, split: int) -> Tensor:
        """Return codes in rows as bytes; row `split + n` shares the bytes of row `n`.

        Args:
            values: r x c, of `dtype`.
            split: At least half of r; unused if codes take a byte.
        """
        if not self.is_packed:
            return values.contiguous()
        codes = (values.to(torch.int16) - self.lowest).to(torch.uint8)
        low, high = codes[:split], codes[split:]
        packed = low.contiguous().clone()
        packed[: len(high)] |= high << _NIBBLE
        return packed

    def unpack(self, packed: Tensor, rows: int) -> Tensor:
        """Return the codes that `pack` packed, `rows` x c."""
        if not self.is_packed:
            return packed
        codes = torch.cat([packed & _LOW, packed >> _NIBBLE])[:rows]
        return (codes.to(torch.int16) + self.lowest).to(self.dtype)

    def numbers(self, packed: Tensor, into: Tensor, *, high: bool = False) -> Tensor:
        """Fill `into` with the numbers of packed bytes; signed integers as code - lowest.

        `into` is a float tensor with their shape; `high` selects the high half of each byte.
        """
        if self.is_packed:
            packed = packed >> _NIBBLE if high else packed & _LOW
        if self.codebook is not None:
            return into.copy_(from_codes(packed, self.codebook))
        if packed.dtype == _E4M3:
            # torch's own conversion takes six times as long
            bits = packed.view(torch.int8).int()
            bits.bitwise_left_shift_(_E4M3_SHIFT).bitwise_and_(_E4M3_BITS)
            return into.copy_(bits.view(torch.float32).mul_(_E4M3_FACTOR))
        return into.copy_(packed)


def as_rows(stored: IntegerTensor, *, turned: bool = False) -> IntegerTensor:
    """Return a quantized matrix with its outputs on axis 0, and its groups along the rows.

    If `turned`, the columns of `stored` are its outputs, as in `addmm`.
    """
    if not turned:
        return stored
    axis = None if stored.axis is None else 0
    return replace(stored, values=stored.values.mT.contiguous(), axis=axis, columns=False)
