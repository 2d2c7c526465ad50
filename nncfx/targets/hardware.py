"""The integer kernels of a target: frozen data that converts to and from JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

from typing_extensions import override

from nncfx.errors import ArgumentError, did_you_mean, require_known, require_truths
from nncfx.json_codec import decode, encode
from nncfx.operators.kinds import KINDS, unknown_kinds
from nncfx.targets.description import read_description

DTYPES: Final[Mapping[str, int]] = MappingProxyType(
    {
        **{f"{sign}int{bits}": bits for bits in (2, 4, 8, 16, 32) for sign in ("", "u")},
        "float8_e4m3": 8,
        "float8_e5m2": 8,
        "float16": 16,
        "bfloat16": 16,
        "float32": 32,
    }
)
"""The dtypes allowed in a descriptor, and their widths in bits."""


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """One way in which a target computes a kind of operation.

    Attributes:
        inputs: The dtype of each input: activation, then weight. The last one also applies to all
            further inputs.
        output: The dtype that the kernel returns.
    """

    inputs: tuple[str, ...]
    output: str

    def __post_init__(self) -> None:
        for dtype in (*self.inputs, self.output):
            require_known("dtype of a hardware description", dtype, DTYPES)
        if not self.inputs:
            raise ArgumentError("A descriptor names no input dtype. Give at least one.")

    def input(self, index: int) -> str:
        """Return the dtype of input `index`, counted from 0."""
        return self.inputs[min(index, len(self.inputs) - 1)]

    @property
    def is_integer(self) -> bool:
        """Whether it contains no float of 16 bits or more."""
        return not any(_is_wide_float(one) for one in (*self.inputs, self.output))

    @property
    def is_float(self) -> bool:
        """Whether it contains no integer."""
        return not any("int" in one for one in (*self.inputs, self.output))

    @property
    def is_quantized(self) -> bool:
        """Whether an input has fewer than 16 bits."""
        return any(DTYPES[one] < 16 for one in self.inputs)  # noqa: PLR2004 (see the docstring)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The kinds of operations that a target computes in integers, and their requirements.

    Attributes:
        name: Its name.
        operations: Kind to its descriptors, the preferred one first. A kind without any runs in
            float. Sort from narrow to wide if several widths are available.
        accumulator_bits: Width of the sums inside a contraction.
        per_channel_weights: Whether each output channel can have its own scale.
        symmetric_activations: Whether the zero point of activations is the middle of their range.
        power_of_two_scales: Whether scales are powers of two.
        saturating_sums: Whether two products of bytes are added in 16 bits, so that weights can
            use only half of their integers (`overflow_fix`).
        quantized_outputs: Kinds that only run in integers if their output is quantized as well.
        unified_scales: Kinds whose inputs must share a scale.
        fused: Chains of kinds that form one kernel: nothing is quantized inside. Each position
            holds one kind or several, separated by `|`.
        alignment: Kernels need channels to be a multiple of this.
        mac_costs: Input dtype to the cost of a multiply-accumulate, in any unit; "float32" for
            unquantized operations. Empty if unknown.
        byte_costs: Dtype to the cost of reading a byte, in the same unit; may be empty.
    """

    name: str
    operations: Mapping[str, tuple[Descriptor, ...]]
    accumulator_bits: int = 32
    per_channel_weights: bool = True
    symmetric_activations: bool = False
    power_of_two_scales: bool = False
    saturating_sums: bool = False
    quantized_outputs: tuple[str, ...] = ()
    unified_scales: tuple[str, ...] = ()
    fused: tuple[tuple[str, ...], ...] = field(default=())
    alignment: int = 1
    # integers remain integers: logs of searches contain a digest of the text
    mac_costs: Mapping[str, int | float] = field(default_factory=dict)
    byte_costs: Mapping[str, int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_truths(self)
        for table in (self.mac_costs, self.byte_costs):
            for dtype, cost in table.items():
                if dtype not in DTYPES or cost < 0:
                    raise ArgumentError(
                        f"The hardware '{self.name}' says that '{dtype}' costs {cost}; costs are "
                        f"not negative, and known dtypes are {', '.join(DTYPES)}."
                        f"{did_you_mean(dtype, DTYPES)}"
                    )
        object.__setattr__(self, "operations", MappingProxyType(dict(self.operations)))
        named = [*self.operations, *self.quantized_outputs, *self.unified_scales]
        named += [one for chain in self.fused for place in chain for one in place.split("|")]
        unknown = unknown_kinds(named)
        if unknown:
            raise ArgumentError(
                f"The hardware '{self.name}' names '{unknown[0]}', which is not a kind of "
                "operation; known are "
                f"{', '.join(sorted(KINDS))}.{did_you_mean(unknown[0], KINDS)}"
            )
        if self.alignment < 1 or self.accumulator_bits < 1:
            raise ArgumentError(
                f"The hardware '{self.name}' has alignment {self.alignment} and accumulators of "
                f"{self.accumulator_bits} bits; both are at least 1."
            )

    @override
    def __reduce__(self) -> tuple[object, ...]:
        # a mapping proxy cannot be pickled; plain data can
        return (decode, (type(self), encode(self)))

    def descriptors(self, kind: str) -> tuple[Descriptor, ...]:
        """Return the descriptors of `kind`, preferred first; empty if it is not described."""
        return self.operations.get(kind, ())

    def quantized(self, kind: str) -> Descriptor | None:
        """Return the preferred descriptor of `kind` with quantized inputs, or None."""
        return next((one for one in self.descriptors(kind) if one.is_quantized), None)

    def is_fused(self, chain: Sequence[str]) -> bool:
        """Return whether the kinds `chain` start a fused pattern, with nothing quantized inside.

        A chain of one kind is never fused.
        """
        return len(chain) > 1 and any(
            len(chain) <= len(pattern)
            and all(one in place.split("|") for one, place in zip(chain, pattern, strict=False))
            for pattern in self.fused
        )

    def to_json(self) -> str:
        """Return the description as JSON text; equal ones give equal text."""
        values = encode(self, omit="none")
        if not self.saturating_sums:
            # omitted, as before this field existed: logs of searches contain a digest of this text
            del values["saturating_sums"]
        return json.dumps(values, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the description in `text`, as written by `to_json`.

        Raises:
            ArgumentError: it is not JSON, lacks a field, or uses an unknown name.
        """
        return read_description(cls, text)


def _is_wide_float(dtype: str) -> bool:
    return "float" in dtype and DTYPES[dtype] >= 16  # noqa: PLR2004 (bits)
