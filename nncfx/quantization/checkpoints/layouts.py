"""How a quantized matrix lies in files that others read: compressed-tensors, and GPTQ's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from nncfx.errors import ArgumentError
from nncfx.storage.models.integer_tensor import IntegerTensor

__all__ = ["LAYOUTS", "Layout", "float4_nibbles", "power_of_two_bytes", "unsigned"]

_WORD: Final = 32
_SIGN_BIT: Final = 8
"""Of a code of float4: in compressed-tensors a sign and the place of the magnitude."""

_EXPONENT_BIAS: Final = 127

ModulesBySize = Mapping[int | None, list[str]]
"""Names by how many weights share a scale; None where each row has its own."""


def pack_words(codes: Tensor, bits: int) -> Tensor:
    """Return unsigned codes in words of 32 bits along the last axis, the first one lowest.

    Args:
        codes: r x c, in [0, 2^bits).
        bits: 4 or 8.

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
    """Return integers counted from the smallest one, int16, as files have them."""
    lowest = -(2 ** (stored.bits - 1)) if stored.values.dtype == torch.int8 else 0
    return values.to(torch.int16) - lowest


@dataclass(frozen=True)
class Layout:
    """A way to write quantized matrices.

    Attributes:
        name: As users write it.
        formats: Of weights that it can hold (`weight_formats.WEIGHT_FORMATS`).
        tensors: Gives the tensors of a matrix, o x i, by the last part of their names.
        config: Gives what the model's config says, from the format, the names of quantized
            modules by the size of their groups, and the linear modules that stay in float.
        read: The inverse of `tensors`, with the shape and dtype of the matrix.
        half_scales: Whether scales are float16 whatever the model is.
        one_size: Whether all groups of a model have one size.
    """

    name: str
    formats: tuple[str, ...]
    tensors: Callable[[IntegerTensor], Mapping[str, Tensor]]
    config: Callable[[str, ModulesBySize, list[str]], Mapping[str, Any]]
    read: Callable[[Mapping[str, Tensor], tuple[int, int], torch.dtype], IntegerTensor]
    half_scales: bool = False
    one_size: bool = False

    def check(self, weights: str, group_size: int | None) -> None:
        """Refuse a format that the layout has no place for.

        Raises:
            ArgumentError: so it is.
        """
        if weights not in self.formats:
            raise ArgumentError(
                f"The layout '{self.name}' has no weights of the format '{weights}'. It holds "
                f"{', '.join(self.formats)}.",
            )
        if self.name == "gptq" and group_size is not None and group_size % _SIGN_BIT:
            raise ArgumentError(
                f"group_size is {group_size}; the layout 'gptq' has groups of multiples of 8.",
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
        "weight_shape": torch.tensor(stored.values.shape, dtype=torch.int64),
    }
    if stored.values.dtype == torch.uint8:
        zero = unsigned(_groups(stored.zero_point, stored), stored)
        found["weight_zero_point"] = pack_words(zero.T, stored.bits).T.contiguous()
    return found


def unpack_words(words: Tensor, bits: int, count: int) -> Tensor:
    """Return what `pack_words` has packed, r x `count`, int64."""
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
    """Return a matrix of codes counted from 0, with zero points like them or in the middle."""
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
    """Return a matrix from scales and zero points of o x g."""
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
    """Return powers of two as exponents in the format E8M0, uint8."""
    return (scale.log2().round().int() + _EXPONENT_BIAS).to(torch.uint8)


def float4_nibbles(codes: Tensor) -> Tensor:
    """Return codes of float4, which ascend, as signs and magnitudes in 4 bits, int64."""
    ascending = codes.to(torch.int64)
    is_negative = ascending < _SIGN_BIT
    magnitude = torch.where(is_negative, _SIGN_BIT - 1 - ascending, ascending - _SIGN_BIT)
    return magnitude + _SIGN_BIT * is_negative


def _packed_floats(codes: Tensor) -> Tensor:
    """Return codes of float4, two in a byte."""
    nibbles = float4_nibbles(codes)
    return (nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).to(torch.uint8)


def _compressed_tensors_config(
    weights: str, modules: ModulesBySize, ignored: list[str]
) -> dict[str, Any]:
    is_float = weights in {"float8_e4m3", "mxfp4"}
    kind = {"mxfp4": "mxfp4-pack-quantized", "float8_e4m3": "naive-quantized"}
    given: dict[str, Any] = {
        "num_bits": 8 if weights in {"int8", "float8_e4m3"} else 4,
        "type": "float" if is_float else "int",
        "symmetric": weights != "uint4",
        "dynamic": False,
    }
    if weights == "mxfp4":
        given |= {"scale_dtype": "torch.uint8", "zp_dtype": "torch.uint8"}
    schemes = [
        {
            "targets": ["Linear"] if len(modules) == 1 else names,
            "weights": given
            | {"strategy": "channel" if size is None else "group", "group_size": size},
            "format": kind.get(weights, "pack-quantized"),
        }
        for size, names in modules.items()
    ]
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": kind.get(weights, "pack-quantized"),
            "quantization_status": "compressed",
            "config_groups": {f"group_{number}": one for number, one in enumerate(schemes)},
            "ignore": ignored,
        }
    }


def _gptq(stored: IntegerTensor) -> dict[str, Tensor]:
    outputs, inputs = stored.values.shape
    scale, zero = _groups(stored.scale, stored), _groups(stored.zero_point, stored)
    group = inputs // scale.shape[1]
    codes, zeros = unsigned(stored.values, stored), unsigned(zero, stored)
    if outputs % (_WORD // stored.bits) or inputs % (_WORD // stored.bits):
        raise ArgumentError(
            f"A matrix of {outputs} x {inputs} fits no words of {_WORD} bits, as the layout "
            "'gptq' has them. Write layout='compressed-tensors'.",
        )
    return {
        "qweight": pack_words(codes, stored.bits).T.contiguous(),
        # readers of this layout add one to the zero points of its first version
        "qzeros": pack_words((zeros.T - 1) % 2**stored.bits, stored.bits),
        "scales": scale.T.to(torch.float16).contiguous(),
        "g_idx": torch.arange(inputs, dtype=torch.int32) // group,
    }


def _read_gptq(
    parts: Mapping[str, Tensor], shape: tuple[int, int], dtype: torch.dtype
) -> IntegerTensor:
    bits = _WORD * parts["qweight"].shape[0] // shape[1]
    codes = unpack_words(parts["qweight"].T, bits, shape[1])
    zeros = (unpack_words(parts["qzeros"], bits, shape[0]) + 1) % 2**bits
    return _integers(codes, parts["scales"].T, zeros.T, bits, dtype)


def _gptq_config(weights: str, modules: ModulesBySize, ignored: list[str]) -> dict[str, Any]:
    size = next(iter(modules), None)
    return {
        "quantization_config": {
            "quant_method": "gptq",
            "bits": 8 if weights == "int8" else 4,
            "group_size": -1 if size is None else size,
            "desc_act": False,
            "sym": weights != "uint4",
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
"""By name. Source: the files of compressed-tensors 0.20 and AutoGPTQ 0.7 ("gptq", version 1)."""
