"""The specification of how a tensor is quantized."""

import dataclasses
from typing import Final, Literal

from nncfx.errors import ArgumentError
from nncfx.storage.models.codebooks import CODEBOOKS

Mode = Literal["symmetric", "asymmetric", "float8_e4m3", "float8_e5m2", "nf4", "float4_e2m1"]

FLOAT8_MAX: Final = {"float8_e4m3": 448.0, "float8_e5m2": 57344.0}
"""The largest finite number of each format."""

MOST_BITS: Final = 16
_BITS = (2, MOST_BITS)
_LEAST_GROUP: Final = 16
"""The smallest group that runtimes support."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizerSpec:
    """How a tensor is quantized.

    Attributes:
        bits: Width of the integers, in 2 to 16; 8 for float8.
        mode: "symmetric": zero is the middle of the range; "asymmetric": the range includes zero
            anywhere; a float8 format; or a codebook of sixteen values: "nf4", or "float4_e2m1",
            which is MXFP4 with a group of 32 and scales that are powers of two.
        signed: Whether integers can be negative. In asymmetric mode it does not change values.
        axis: The axis that has a scale for each index; None for a single scale.
        group: For weights: number of consecutive elements along the last axis that share a
            scale; `axis` is then None.
        columns: For groups of a matrix: they lie along its first axis, since a column makes an
            output, as `addmm` reads it.
        narrow: Leave out the most negative integer, so that a weight and its negative are
            equally exact.
        half_range: Use half of the integers (NNCF's overflow fix), for processors whose sums of
            two products overflow 16 bits.
        power_of_two: Scales are powers of two.

    Raises:
        ArgumentError: the values contradict each other.
    """

    bits: int = 8
    mode: Mode = "symmetric"
    signed: bool = True
    axis: int | None = None
    group: int | None = None
    columns: bool = False
    narrow: bool = False
    half_range: bool = False
    power_of_two: bool = False

    def __post_init__(self) -> None:
        low, high = _BITS
        if not low <= self.bits <= high:
            raise ArgumentError(
                f"bits is {self.bits}; quantizers have {low} to {high}. Leave a tensor in float "
                "with an ignored scope."
            )
        if self.is_float8 and self.bits != 8:  # noqa: PLR2004 (float8)
            raise ArgumentError(
                f"bits is {self.bits} with the mode '{self.mode}', which has 8. Leave bits out."
            )
        if self.is_codebook and self.bits != 4:  # noqa: PLR2004 (sixteen values)
            raise ArgumentError(
                f"bits is {self.bits} with the mode '{self.mode}', which has 4. Write bits=4."
            )
        if self.group is not None and (self.axis is not None or self.group < 1):
            raise ArgumentError(
                f"group is {self.group} with axis {self.axis}; a group has at least one element "
                "and takes the place of an axis. Give one of them."
            )
        if self.columns and self.group is None:
            raise ArgumentError(
                "columns says where groups lie, and there is no group. Give a group, or, for one "
                "scale per column, axis=1."
            )

    @property
    def is_float8(self) -> bool:
        """Whether values are rounded to a float format instead of integers."""
        return self.mode in FLOAT8_MAX

    @property
    def is_codebook(self) -> bool:
        """Whether values are rounded to a codebook of sixteen values instead of integers."""
        return self.mode in CODEBOOKS

    @property
    def is_integer(self) -> bool:
        """Whether values are rounded to multiples of the scale."""
        return not (self.is_float8 or self.is_codebook)

    @property
    def peak(self) -> float:
        """The divisor that turns the largest magnitude of a range into the scale."""
        if self.is_codebook:
            return CODEBOOKS[self.mode][-1]
        return FLOAT8_MAX[self.mode] if self.is_float8 else float(self.quant_max)

    @property
    def quant_min(self) -> int:
        """The smallest integer; 0 if unsigned."""
        if not self.signed:
            return 0
        return -int(2 ** (self._width - 1)) + self.narrow

    @property
    def quant_max(self) -> int:
        """The largest integer."""
        return int(2 ** (self._width - self.signed)) - 1

    @property
    def _width(self) -> int:
        return self.bits - self.half_range

    @property
    def dtype(self) -> str:
        """The dtype that holds the integers: `int8`, `uint4`, `float8_e4m3`, ..."""
        if not self.is_integer:
            return self.mode
        width = next(one for one in (2, 4, 8, 16) if one >= self.bits)
        return f"{'' if self.signed else 'u'}int{width}"

    def replace(self, **changes: object) -> "QuantizerSpec":
        """Return a copy with `changes`.

        >>> QuantizerSpec().replace(bits=4).quant_max
        7
        """
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # checked there


def fitting_group(group: int | None, width: int) -> int | None:
    """Return `group` halved until it divides `width`, at least 16; None for a whole row.

    >>> fitting_group(128, 96), fitting_group(32, 40)
    (32, None)
    """
    while group is not None and width % group:
        group = group // 2 if group >= 2 * _LEAST_GROUP else None
    return group
