"""Layouts of quantized matrices in files of other programs: compressed-tensors and GPTQ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.storage.models.integer_tensor import IntegerTensor

_BYTE: Final = 8
_WORD: Final = 32
_SIGN_BIT: Final = 8
"""Sign bit of a float4 code in compressed-tensors; the other bits index the magnitude."""

_EXPONENT_BIAS: Final = 127


@dataclass(frozen=True)
class MatrixGrid:
    """The grid of quantized matrices as a config describes it.

    Attributes:
        bits: Bits of a code.
        is_float: Whether codes are floats.
        is_symmetric: Whether there is no zero point.
        group: How many weights share a scale; None if each row has a single scale.
    """

    bits: int
    is_float: bool
    is_symmetric: bool
    group: int | None

    @classmethod
    def of(cls, stored: IntegerTensor, asked: int | None) -> "MatrixGrid":
        """Return the grid of a matrix; `asked` is the requested group.

        A group that spans a whole row counts as a group only if it was requested.
        """
        width = stored.values.shape[1]
        size = stored.values.numel() // stored.scale.numel()
        return cls(
            bits=stored.bits,
            is_float=stored.codebook is not None or stored.values.dtype.is_floating_point,
            is_symmetric=stored.values.dtype != torch.uint8 or stored.codebook is not None,
            group=None if size == width != asked else size,
        )


ModulesByGrid = Mapping[MatrixGrid, list[str]]


def pack_words(codes: Tensor, bits: int) -> Tensor:
    """Pack unsigned codes of 4 or 8 bits, r x c, into words of 32 bits along the last axis.

    The first code takes the lowest bits.

    >>> pack_words(torch.tensor([[1, 2, 0, 0, 0, 0, 0, 15]]), 4)
    tensor([[-268435423]], dtype=torch.int32)
    """
    each = _WORD // bits
    words = codes.new_zeros(len(codes), -(-codes.shape[1] // each), dtype=torch.int32)
    for place in range(each):
        part = codes[:, place::each].to(torch.int32)
        words[:, : part.shape[1]] |= part << place * bits
    return words


def _groups(value: Tensor, stored: IntegerTensor) -> Tensor:
    """Return a scale or zero point as o x g."""
    return value.reshape(len(stored.values), -1)


def unsigned(values: Tensor, stored: IntegerTensor) -> Tensor:
    """Return integers minus the smallest integer, int16, as in files."""
    lowest = -(2 ** (stored.bits - 1)) if stored.values.dtype == torch.int8 else 0
    return values.to(torch.int16) - lowest


def centred(stored: IntegerTensor) -> IntegerTensor:
    """Return a symmetric grid with signed integers if a file stores it with a zero point."""
    if stored.values.dtype != torch.uint8 or stored.codebook is not None:
        return stored
    middle = 2 ** (stored.bits - 1)
    return replace(
        stored,
        values=(stored.values.to(torch.int16) - middle).to(torch.int8),
        zero_point=stored.zero_point - middle,
    )


@dataclass(frozen=True)
class Layout:
    """A format for quantized matrices in files.

    Attributes:
        name: Name for users.
        formats: Supported formats of weights (`weight_formats.WEIGHT_FORMATS`).
        tensors: Returns the tensors of a matrix, o x i, by the last part of their names.
        config: Returns the entries of the model's config, from the names of quantized modules by
            their grid, and those of linear modules that stay in float.
        read: The inverse of `tensors`, with the shape and dtype of the matrix.
        half_scales: Whether scales are always float16.
        one_size: Whether all groups of a model must have the same size.
    """

    name: str
    formats: tuple[str, ...]
    tensors: Callable[[IntegerTensor], Mapping[str, Tensor]]
    config: Callable[[ModulesByGrid, list[str]], Mapping[str, Any]]
    read: Callable[[Mapping[str, Tensor], tuple[int, int], torch.dtype], IntegerTensor]
    half_scales: bool = False
    one_size: bool = False

    def check(self, weights: str, group_size: int | None) -> None:
        """Check that the layout supports a format.

        Raises:
            ArgumentError: it does not.
        """
        if weights not in self.formats:
            raise ArgumentError(
                f"The layout '{self.name}' has no weights of the format '{weights}'. It holds "
                f"{', '.join(self.formats)}."
            )
        if self.name == "gptq" and group_size is not None and group_size % _SIGN_BIT:
            raise ArgumentError(
                f"group_size is {group_size}; the layout 'gptq' has groups of multiples of 8."
            )


def _compressed_tensors(stored: IntegerTensor) -> dict[str, Tensor]:
    scale = _groups(stored.scale, stored)
    if stored.codebook is not None:
        return {
            "weight_packed": _packed_floats(stored.values),
            "weight_scale": power_of_two_bytes(scale),
        }
    scale = scale.to(stored.dtype).contiguous()
    if stored.values.dtype.is_floating_point:
        return {"weight": stored.values.contiguous(), "weight_scale": scale}
    found = {
        "weight_packed": pack_words(unsigned(stored.values, stored), stored.bits),
        "weight_scale": scale,
        "weight_shape": torch.tensor(stored.values.shape, dtype=torch.int64, device="cpu"),
    }
    if stored.values.dtype == torch.uint8:
        zero = unsigned(_groups(stored.zero_point, stored), stored)
        found["weight_zero_point"] = pack_words(zero.T, stored.bits).T.contiguous()
    return found


def unpack_words(words: Tensor, bits: int, count: int) -> Tensor:
    """Return the codes that `pack_words` packed, r x `count`, int64."""
    shifts = torch.arange(_WORD // bits, device=words.device) * bits
    codes = (words.to(torch.int64).unsqueeze(-1) >> shifts) & (2**bits - 1)
    found: Tensor = codes.flatten(1)[:, :count]
    return found


def _read_compressed_tensors(
    parts: Mapping[str, Tensor], shape: tuple[int, int], dtype: torch.dtype
) -> IntegerTensor:
    scale = parts["weight_scale"]
    if "weight" in parts:
        return _made(parts["weight"], scale, None, dtype)
    packed = parts["weight_packed"]
    if packed.dtype == torch.uint8:
        nibbles = torch.stack([packed & 15, packed >> 4], -1).flatten(1).to(torch.int64)
        magnitude = nibbles % _SIGN_BIT
        codes = torch.where(nibbles >= _SIGN_BIT, _SIGN_BIT - 1 - magnitude, _SIGN_BIT + magnitude)
        exact = torch.exp2(scale.float() - _EXPONENT_BIAS)
        values = codes.to(torch.uint8)
        return _made(values, exact, None, dtype, bits=4, codebook="float4_e2m1")
    bits = 4 if packed.shape[1] * _WORD // 4 < shape[1] + _SIGN_BIT else 8
    codes = unpack_words(packed, bits, shape[1])
    zero = parts.get("weight_zero_point")
    if zero is not None:
        zero = unpack_words(zero.T, bits, shape[0]).T
    return _integers(codes, scale, zero, bits, dtype)


def _integers(
    codes: Tensor, scale: Tensor, zero: Tensor | None, bits: int, dtype: torch.dtype
) -> IntegerTensor:
    """Return a matrix from unsigned codes; without zero points, 0 is the middle code."""
    if zero is None:
        values = (codes - 2 ** (bits - 1)).to(torch.int8)
        return _made(values, scale, None, dtype, bits=bits)
    return _made(codes.to(torch.uint8), scale, zero, dtype, bits=bits)


def _made(
    values: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    dtype: torch.dtype,
    *,
    bits: int = 8,
    codebook: str | None = None,
) -> IntegerTensor:
    """Return a matrix from values, and scales and zero points of o x g."""
    groups = scale.shape[1]
    flat = scale.float().reshape(-1)
    return IntegerTensor(
        values=values,
        scale=flat,
        zero_point=torch.zeros_like(flat, dtype=torch.int32)
        if zero is None
        else zero.reshape(-1).to(torch.int32),
        bits=bits,
        axis=0 if groups == 1 else None,
        group=None if groups == 1 else values.shape[1] // groups,
        codebook=codebook,
        dtype=dtype,
    )


def power_of_two_bytes(scale: Tensor) -> Tensor:
    """Return the exponents of powers of two in the format E8M0, uint8."""
    return (scale.log2().round().int() + _EXPONENT_BIAS).to(torch.uint8)


def float4_nibbles(codes: Tensor) -> Tensor:
    """Convert ascending codes of float4 to sign and magnitude in 4 bits, int64."""
    ascending = codes.to(torch.int64)
    is_negative = ascending < _SIGN_BIT
    magnitude = torch.where(is_negative, _SIGN_BIT - 1 - ascending, ascending - _SIGN_BIT)
    return magnitude + _SIGN_BIT * is_negative


def _packed_floats(codes: Tensor) -> Tensor:
    """Pack codes of float4, two per byte."""
    nibbles = float4_nibbles(codes)
    return (nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).to(torch.uint8)


def _compressed_tensors_config(modules: ModulesByGrid, ignored: list[str]) -> dict[str, Any]:
    schemes = [
        {
            "targets": ["Linear"] if len(modules) == 1 else names,
            "weights": _weights_config(grid),
            "format": _kind(grid),
        }
        for grid, names in modules.items()
    ]
    kinds = {_kind(grid) for grid in modules}
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": kinds.pop() if len(kinds) == 1 else "mixed-precision",
            "quantization_status": "compressed",
            "config_groups": {f"group_{number}": one for number, one in enumerate(schemes)},
            "ignore": ignored,
        }
    }


def _kind(grid: MatrixGrid) -> str:
    if not grid.is_float:
        return "pack-quantized"
    return "naive-quantized" if grid.bits == _BYTE else "mxfp4-pack-quantized"


def _weights_config(grid: MatrixGrid) -> dict[str, Any]:
    found = {
        "num_bits": grid.bits,
        "type": "float" if grid.is_float else "int",
        "symmetric": grid.is_symmetric,
        "dynamic": False,
        "strategy": "channel" if grid.group is None else "group",
        "group_size": grid.group,
    }
    if grid.is_float and grid.bits < _BYTE:
        found |= {"scale_dtype": "torch.uint8", "zp_dtype": "torch.uint8"}
    return found


def _gptq(stored: IntegerTensor) -> dict[str, Tensor]:
    outputs, inputs = stored.values.shape
    scale, zero = _groups(stored.scale, stored), _groups(stored.zero_point, stored)
    group = inputs // scale.shape[1]
    codes, zeros = unsigned(stored.values, stored), unsigned(zero, stored)
    if outputs % (_WORD // stored.bits) or inputs % (_WORD // stored.bits):
        raise ArgumentError(
            f"A matrix of {outputs} x {inputs} does not fit words of {_WORD} bits, which the "
            "layout 'gptq' needs. Write layout='compressed-tensors'."
        )
    return {
        "qweight": pack_words(codes, stored.bits).T.contiguous(),
        # readers of this layout add one to the zero points of its first version
        "qzeros": pack_words((zeros.T - 1) % 2**stored.bits, stored.bits),
        "scales": scale.T.to(torch.float16).contiguous(),
        "g_idx": torch.arange(inputs, dtype=torch.int32, device="cpu") // group,
    }


def _read_gptq(
    parts: Mapping[str, Tensor], shape: tuple[int, int], dtype: torch.dtype
) -> IntegerTensor:
    bits = _WORD * parts["qweight"].shape[0] // shape[1]
    codes = unpack_words(parts["qweight"].T, bits, shape[1])
    zeros = (unpack_words(parts["qzeros"], bits, shape[0]) + 1) % 2**bits
    return _integers(codes, parts["scales"].T, zeros.T, bits, dtype)


def _gptq_config(modules: ModulesByGrid, ignored: list[str]) -> dict[str, Any]:
    (grid,) = modules  # all matrices have one grid
    return {
        "quantization_config": {
            "quant_method": "gptq",
            "bits": grid.bits,
            "group_size": -1 if grid.group is None else grid.group,
            "desc_act": False,
            "sym": grid.is_symmetric,
            "checkpoint_format": "gptq",
            "modules_in_block_to_quantize": None,
            "modules_to_not_convert": ignored,
        }
    }


LAYOUTS: Final[dict[str, Layout]] = {
    one.name: one
    for one in (
        Layout(
            "compressed-tensors",
            ("int8", "int4", "uint4", "float8_e4m3", "mxfp4"),
            _compressed_tensors,
            _compressed_tensors_config,
            _read_compressed_tensors,
        ),
        Layout(
            "gptq",
            ("int8", "int4", "uint4"),
            _gptq,
            _gptq_config,
            _read_gptq,
            half_scales=True,
            one_size=True,
        ),
    )
}
"""Layouts by name.

Source: the files of compressed-tensors 0.20 and AutoGPTQ 0.7 ("gptq", version 1).
"""
