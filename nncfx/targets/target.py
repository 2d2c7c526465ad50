"""A deployment target: what it computes, and what it needs of a model and its file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from nncfx.errors import ArgumentError, require_truths
from nncfx.json_codec import encode
from nncfx.targets.alignment import Alignment
from nncfx.targets.description import read_description
from nncfx.targets.hardware import Hardware
from nncfx.targets.selection_cost import SelectionCost
from nncfx.targets.workarounds import WORKAROUNDS

TARGET_KEY: Final = "nncfx.target"
"""The key for the name of the target in the metadata of an ONNX file."""

PARTS: Final = {
    "alignment": "widths that suit it",
    "copies": "costs of copying channels",
    "kernels": "integer kernels",
    "opset": "ONNX files",
}
"""The optional parts of a target, by field name, in words."""

_FORMER: Final = {"fence_floats": "add_fusion_barriers", "image_blocks": "space_to_depth_stem"}
"""Field names in older files, which are still accepted."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A runtime on some hardware, as data; `None` means unknown or missing.

    Attributes:
        name: the runtime, or the runtime and a variant of it: `onnxruntime-avx2`.
        runtime: the name in `nncfx.runtimes` of the runtime that runs its files, if any.
        devices: the values of `target_device` in a config that select this target.
        kernels: the number formats that it computes in, by kind of operation.
        alignment: the widths that it computes efficiently.
        copies: the cost of copying channels.
        opset: the ONNX operator set that it reads without conversion.
        newest_opset: the newest operator set that it reads at all.
        integer_bias: biases are int32, in the scale of the sums they are added to.
        float_results: its integer convolutions can output floats; otherwise convolutions of one
            pixel are written as matrix products, and all others need a quantizer after them.
        space_to_depth_stem: its first integer convolution is faster on blocks of pixels.
        bfloat16: it computes in bfloat16 if the file does.
        sigmoid_tables: it computes the sigmoid of bytes with a table.
        block_weights: it has ONNX Runtime's `MatMulNBits` for weights quantized group by group.
        accuracy_level: of `MatMulNBits`: 1 multiplies floats, 4 rounds inputs to 8 bits by blocks.
        folds_casts_of_weights: it computes casts of constants when it loads a file, so int4
            weights with a cast reach its kernels as int8.
        skips_zeros_2_4: it has kernels that skip zeros if two of every four neighbouring inputs of
            a weight are zero.
        workarounds: passes of the export that work around its problems, from `WORKAROUNDS`.
        saturation_mend: what to do if this CPU adds products of bytes in 16 bits; empty if it does
            not run on such CPUs.
        missing: why a part is missing, by field name.

    Raises:
        ArgumentError: a value is invalid, or contradicts another.
    """

    name: str
    runtime: str | None = None
    devices: tuple[str, ...] = ()
    kernels: Hardware | None = None
    alignment: Alignment | None = None
    copies: SelectionCost | None = None
    opset: int | None = None
    newest_opset: int | None = None
    integer_bias: bool = True
    float_results: bool = False
    space_to_depth_stem: bool = False
    bfloat16: bool = False
    sigmoid_tables: bool = False
    block_weights: bool = False
    accuracy_level: int = 4
    folds_casts_of_weights: bool = False
    skips_zeros_2_4: bool = False
    workarounds: tuple[str, ...] = ()
    saturation_mend: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_truths(self)
        if not self.name or self.name.endswith(".json"):
            raise ArgumentError(
                f"The target's name is '{self.name}', which is empty or reads as a file. "
                "Write the runtime, or runtime-variant, such as 'onnxruntime-avx2'."
            )
        one, newest = self.opset, self.newest_opset
        if (one is None) != (newest is None) or (one or 0) > (newest or 0):
            raise ArgumentError(
                f"The target '{self.name}' has opset {self.opset} and newest_opset "
                f"{self.newest_opset}; it reads the one and all up to the other. Give both, in "
                "order, or neither."
            )
        if self.accuracy_level not in (1, 4):
            raise ArgumentError(
                f"The target '{self.name}' has accuracy_level {self.accuracy_level}; packed "
                "weights are multiplied with floats (1), or with inputs rounded to 8 bits (4)."
            )
        known = {one.applied_by for one in WORKAROUNDS}
        if unknown := sorted(set(self.workarounds) - known):
            raise ArgumentError(
                f"The target '{self.name}' names the workaround '{unknown[0]}', which the export "
                "does not know, so nothing would be done. Write one of "
                f"{', '.join(sorted(known))}, or leave it out."
            )
        if unknown := sorted(set(self.missing) - set(PARTS)):
            raise ArgumentError(
                f"The target '{self.name}' says why '{unknown[0]}' is missing, which is not a "
                f"part of a target. Parts are {', '.join(PARTS)}."
            )

    @property
    def symmetric(self) -> bool:
        """Whether activations are int8 with zero point 0; else they are written as uint8."""
        return self.kernels is not None and self.kernels.symmetric_activations

    def to_json(self) -> str:
        """Return the target as JSON text; equal ones give equal text."""
        return json.dumps(encode(self, omit="none"), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the target that `text` describes, as written by `to_json`.

        Raises:
            ArgumentError: it is not JSON, lacks a field, or has invalid values.
        """
        for former, name in _FORMER.items():
            text = text.replace(f'"{former}"', f'"{name}"')
        return read_description(cls, text)
