"""Represent quantized tensors by integers, scales and zero points, and pack integers in bytes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nncfx.errors import StorageError
from nncfx.storage.models.codebooks import CODEBOOKS, from_codes
from nncfx.storage.models.torch_bits import DTYPES, NAMES

_BYTE = 8
_WIDTHS = (2, 4, 8, 16)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerTensor:
    """A tensor on a grid: `dequantize()` is `(values - zero_point) * scale`, or a table lookup.

    Attributes:
        values: The integers in the tensor's shape: int8, uint8, int16, uint16; or float8.
        scale: The distance of two neighbours on the grid: a scalar, one per index of `axis`, or
            one per group.
        zero_point: The integer that represents 0, in the shape of `scale`, int32.
        bits: How many bits of each integer are used, from 2 to 16.
        axis: The axis with a scale per index; None for a single scale or for groups.
        group: How many consecutive elements along the last axis share a scale.
        columns: Whether groups lie along the second-to-last axis.
        codebook: The table (`codebooks.CODEBOOKS`) of which the values are indices, if any.
        dtype: Of the floating-point tensor.
    """

    values: Tensor
    scale: Tensor
    zero_point: Tensor
    bits: int
    axis: int | None = None
    group: int | None = None
    columns: bool = False
    codebook: str | None = None
    dtype: torch.dtype = torch.float32

    def dequantize(self) -> Tensor:
        """Return the floating-point tensor, of `dtype`; half precision is computed in float32."""
        is_half = self.dtype in {torch.float16, torch.bfloat16}
        width = torch.float32 if is_half else self.dtype
        numbers = self.values.to(width)
        if self.codebook is not None:
            numbers = from_codes(self.values, self.codebook, width)
        if self.group is not None:
            rows = (numbers.mT if self.columns else numbers).reshape(-1, self.group)
            on_grid = self._scaled(rows, 0)
            if self.columns:
                return on_grid.reshape(numbers.mT.shape).mT.contiguous().to(self.dtype)
            return on_grid.reshape(numbers.shape).to(self.dtype)
        return self._scaled(numbers, self.axis).to(self.dtype)

    def _scaled(self, numbers: Tensor, axis: int | None) -> Tensor:
        shape = [1] * numbers.ndim
        if axis is not None:
            shape[axis] = -1
        scale, zero = (
            one if axis is None else one.reshape(shape) for one in (self.scale, self.zero_point)
        )
        if self.values.dtype in _FLOAT8 or self.codebook is not None:
            return numbers * scale
        return (numbers - zero.to(scale.dtype)) * scale

    def described(self) -> dict[str, Any]:
        """Return the JSON values that describe the three tensors; `from_parts` is the inverse."""
        given: dict[str, int | str | None] = {
            "axis": self.axis,
            "group": self.group,
            "columns": self.columns or None,
        }
        given["codebook"] = self.codebook
        return {"bits": self.bits, "dtype": NAMES[self.dtype]} | {
            key: value for key, value in given.items() if value is not None
        }

    @classmethod
    def from_parts(
        cls, values: Tensor, scale: Tensor, zero_point: Tensor | None, described: Mapping[str, Any]
    ) -> "IntegerTensor":
        """Return the tensor that `described` describes; without `zero_point`, it is 0 everywhere.

        Raises:
            StorageError: the parts are inconsistent.
        """
        try:
            zero = torch.zeros_like(scale) if zero_point is None else zero_point
            made = cls(
                values=values,
                scale=scale,
                zero_point=zero.to(torch.int32),
                bits=int(described["bits"]),
                axis=_whole(described.get("axis")),
                group=_whole(described.get("group")),
                columns=bool(described.get("columns")),
                codebook=described.get("codebook"),
                dtype=DTYPES[described["dtype"]],
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StorageError(f"A quantized tensor is badly described: {error!r}.") from error
        made._check()
        return made

    def _check(self) -> None:
        count, ndim = self.scale.numel(), self.values.ndim
        if self.group is not None:
            fits = self.axis is None and self.group > 0 and (ndim > 1 or not self.columns)
            fits = fits and count * self.group == self.values.numel()
        elif self.axis is not None:
            fits = -ndim <= self.axis < ndim and self.values.shape[self.axis] == count
        else:
            fits = self.scale.ndim == 0
        fits = fits and self.scale.shape == self.zero_point.shape
        if self.codebook is not None:
            is_read = self.codebook in CODEBOOKS and self.values.dtype == torch.uint8
            fits = fits and is_read and bool((self.values < len(CODEBOOKS[self.codebook])).all())
        if not (fits and self.scale.is_floating_point() and self.dtype.is_floating_point):
            raise StorageError(
                f"{count} scales do not fit integers of shape {tuple(self.values.shape)}."
            )


def integers_of(tensors: Mapping[str, Tensor], described: object) -> dict[str, IntegerTensor]:
    """Return the integers among the `tensors` of a file, by name.

    `described` maps each name to the result of `IntegerTensor.described`, with the names of
    `scale` and `zero_point`.

    Raises:
        StorageError: a tensor is missing, or parts are inconsistent.
    """
    if not isinstance(described, Mapping):
        raise StorageError("The file is damaged: its integers are not a table. Write it again.")
    found = {}
    for name, one in described.items():
        try:
            zero = tensors[one["zero_point"]] if "zero_point" in one else None
            found[name] = IntegerTensor.from_parts(tensors[name], tensors[one["scale"]], zero, one)
        except (KeyError, TypeError) as error:
            raise StorageError(
                f"The file is damaged: the integers of '{name}' lack {error}. Write it again."
            ) from error
    return found


def _whole(value: object) -> int | None:
    return None if value is None else int(value)  # type: ignore[call-overload]  # raises


def pack_integers(values: Tensor, bits: int) -> Tensor | None:
    """Return integers of few bits packed into bytes; None if each takes a byte or more.

    The first integer is in the lowest bits of a byte; unused bits of the last byte are 0.

    Args:
        values: int8 or uint8, any shape.
        bits: How many bits of each are used, 2 or more; 3 bits take as much space as 4.

    >>> pack_integers(torch.tensor([1, -1, 2], dtype=torch.int8), 4)
    tensor([241,   2], dtype=torch.uint8)
    """
    width = next(one for one in _WIDTHS if one >= bits)
    if width >= _BYTE or values.dtype not in {torch.int8, torch.uint8}:
        return None
    per_byte = _BYTE // width
    flat = values.reshape(-1).view(torch.uint8) & (2**width - 1)
    flat = torch.nn.functional.pad(flat, (0, -flat.numel() % per_byte)).view(-1, per_byte)
    packed = flat[:, 0].clone()
    for place in range(1, per_byte):
        packed |= flat[:, place] << (place * width)
    return packed


def unpack_integers(packed: Tensor, bits: int, shape: tuple[int, ...], *, signed: bool) -> Tensor:
    """Return the integers that `pack_integers` packed, in `shape`.

    Raises:
        StorageError: the number of bytes does not fit `shape`.
    """
    width = next((one for one in _WIDTHS if one >= bits), _BYTE)
    count = math.prod(shape)
    per_byte = _BYTE // width
    if width >= _BYTE or packed.dtype != torch.uint8 or packed.numel() != -(-count // per_byte):
        raise StorageError(f"{packed.numel()} bytes do not hold {count} integers of {bits} bits.")
    parts = [packed.reshape(-1) >> (place * width) for place in range(per_byte)]
    flat: Tensor = torch.stack(parts, 1).reshape(-1)[:count] & (2**width - 1)
    if signed:
        high = 2 ** (width - 1)
        flat = (flat ^ high).to(torch.int8) - high
    return flat.reshape(shape)
