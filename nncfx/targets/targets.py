"""What each target runtime wants of an ONNX file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from nncfx.errors import ArgumentError, did_you_mean

__all__ = ["TARGETS", "Target", "target_named"]


@dataclass(frozen=True)
class Target:
    """A runtime that is to read the file.

    Attributes:
        name: how `export_onnx` calls it.
        opset: the ONNX operator set that it reads without conversion.
        newest_opset: the newest operator set that it reads at all.
        symmetric: it computes in integers on int8 with zero point 0 only; without, activations
            are written as uint8.
        integer_bias: biases are int32, in the scale of the sums they are added to.
        pixel_products: it has no integer convolution that ends in float, and convolutions of one
            pixel are written as matrix products.
        image_blocks: its first integer convolution is faster on blocks of pixels.
        subsampled_pixels: it computes in float where all readers of a tensor are convolutions of
            one pixel that skip pixels, unless these are left out before.
        rewrites_floats: it changes floats that meet integers, unless they are fenced off
            (`fence_floats`).
        constant_gru: it reads the weights of a GRU as constant floats only, where other tensors
            are quantized.
        bfloat16: it computes in bfloat16 where the file does.
        block_weights: it has ONNX Runtime's `MatMulNBits` for weights quantized group by group.
    """

    name: str
    opset: int
    newest_opset: int
    symmetric: bool = False
    integer_bias: bool = True
    rewrites_floats: bool = False
    constant_gru: bool = False
    bfloat16: bool = False
    block_weights: bool = False
    pixel_products: bool = True
    image_blocks: bool = False
    subsampled_pixels: bool = False


_ONNXRUNTIME: Final = Target(
    "onnxruntime",
    opset=21,
    newest_opset=23,
    rewrites_floats=True,
    block_weights=True,
    image_blocks=True,
)

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "onnxruntime": _ONNXRUNTIME,
        # Without VNNI products take longer than copies, of which the blocks save some.
        "onnxruntime_avx2": replace(_ONNXRUNTIME, name="onnxruntime_avx2", image_blocks=False),
        "openvino": Target(
            "openvino",
            opset=21,
            newest_opset=23,
            integer_bias=False,  # 2026.4 adds wrong ones where a layer runs twice
            constant_gru=True,
            pixel_products=False,
            subsampled_pixels=True,
        ),
        "tensorrt": Target(
            "tensorrt",
            opset=21,
            newest_opset=22,
            symmetric=True,
            integer_bias=False,
            bfloat16=True,
        ),
    },
)
"""The targets of `export_onnx`, by name."""


def target_named(name: str) -> Target:
    """Return the target called `name`.

    Raises:
        ArgumentError: there is none of that name.

    >>> target_named("onnxruntime").opset
    21
    """
    if name not in TARGETS:
        raise ArgumentError(
            f"There is no export target '{name}'; the targets are {', '.join(sorted(TARGETS))}."
            f"{did_you_mean(name, TARGETS)}",
        )
    return TARGETS[name]
