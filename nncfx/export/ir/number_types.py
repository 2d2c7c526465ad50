"""Choose the integers in which a target stores a quantized tensor."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from nncfx.errors import ExportError
from nncfx.export.ir.fake_quantize import Grid
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

_INT8_OFFSET: Final = 128
_SEVEN_BITS: Final = 127
_RANGES: Final = {
    "INT4": (-8, 7),
    "UINT4": (0, 15),
    "INT8": (-128, 127),
    "UINT8": (0, 255),
    "INT16": (-32768, 32767),
    "UINT16": (0, 65535),
}


def activation_grid(grid: Grid, target: Target) -> Grid:
    """Return `grid` in the form that `target` needs for an activation: uint8 or symmetric int8.

    From signed to unsigned the values stay the same. For a symmetric target, an asymmetric grid is
    replaced by a symmetric grid that covers it and is coarser, by a factor of two after a ReLU.
    """
    return _symmetric(grid) if target.symmetric else unsigned_grid(grid)


def unsigned_grid(grid: Grid) -> Grid:
    """Return an int8 grid shifted to uint8, any other unchanged; the values stay the same."""
    return _shifted(grid, _INT8_OFFSET) if _fits(grid, "INT8") and grid.low < 0 else grid


def signed_grid(grid: Grid) -> Grid:
    """Return a uint8 grid shifted to int8, any other unchanged; the values stay the same."""
    return _shifted(grid, -_INT8_OFFSET) if _fits(grid, "UINT8") else grid


def weight_grid(grid: Grid, target: Target) -> Grid:
    """Return `grid` in the form that `target` needs for a weight: int8; the values stay the same.

    Unsigned weights of 7 bits are shifted as well: they would fit int8 unshifted, but the sums of
    their products with bytes, for which they have 7 bits, could overflow.

    For a symmetric target, an asymmetric grid is replaced by a symmetric grid that covers it.
    """
    if target.symmetric:
        return _symmetric(grid)
    is_unsigned = _fits(grid, "UINT8") and grid.high >= _SEVEN_BITS
    return _shifted(grid, -((grid.high + 1) // 2)) if is_unsigned else grid


def number_type(grid: Grid, *, signed_first: bool) -> "ir.DataType":
    """Return the narrowest of int8, uint8, int16 and uint16 that holds the integers of `grid`.

    Args:
        grid: the grid.
        signed_first: whether to prefer int8 if both int8 and uint8 fit.

    Raises:
        ExportError: the grid needs more than 16 bits.
    """
    import onnx_ir as ir

    names = ("INT8", "UINT8") if signed_first else ("UINT8", "INT8")
    for name in (*names, "INT16", "UINT16"):
        if _fits(grid, name):
            return ir.DataType[name]
    raise ExportError(
        f"A quantizer with the integers {grid.low} to {grid.high} needs more than 16 bits, which "
        "no ONNX type for quantized tensors has. Use 16 bits at most."
    )


def int4_type(grid: Grid) -> "ir.DataType | None":
    """Return int4 or uint4, whichever holds the integers of `grid`; None if neither does."""
    import onnx_ir as ir

    return next((ir.DataType[name] for name in ("INT4", "UINT4") if _fits(grid, name)), None)


def _fits(grid: Grid, name: str) -> bool:
    low, high = _RANGES[name]
    return low <= grid.low and grid.high <= high


def _shifted(grid: Grid, by: int) -> Grid:
    return replace(grid, zero_point=grid.zero_point + by, low=grid.low + by, high=grid.high + by)


def _symmetric(grid: Grid) -> Grid:
    if grid.low < 0 and not grid.zero_point.any():
        return grid
    steps = np.maximum(grid.zero_point - grid.low, grid.high - grid.zero_point)
    high = (grid.high - grid.low) // 2
    return replace(
        grid,
        scale=(grid.scale * steps / high).astype(np.float32),
        zero_point=np.zeros_like(grid.zero_point),
        low=-high,
        high=high,
    )
