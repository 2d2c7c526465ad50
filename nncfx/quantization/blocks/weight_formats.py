"""The formats of weights by name."""

import logging
from typing import Final, Literal

import torch
from torch import Tensor

from nncfx.errors import ArgumentError, require_known
from nncfx.quantization.grid.fake_quantize import qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec, fitting_group
from nncfx.quantization.ranges.half_quadratic import half_quadratic_grid
from nncfx.quantization.ranges.range_shares import best_shares

_LOGGER = logging.getLogger(__name__)

WeightFormat = Literal["int8", "int4", "uint4", "nf4", "float8_e4m3", "mxfp4"]

WEIGHT_FORMATS: Final[dict[str, QuantizerSpec]] = {
    "int8": QuantizerSpec(narrow=True),
    "int4": QuantizerSpec(bits=4),
    "uint4": QuantizerSpec(bits=4, mode="asymmetric", signed=False),
    "nf4": QuantizerSpec(bits=4, mode="nf4"),
    "float8_e4m3": QuantizerSpec(mode="float8_e4m3"),
    "mxfp4": QuantizerSpec(bits=4, mode="float4_e2m1", group=32, power_of_two=True),
}
"""Grids without groups: symmetric integers ("int8", "int4"), integers with a zero point
("uint4"), the quantiles of QLoRA, and floats of eight and four bits."""


def format_spec(name: str, group_size: int | None, width: int) -> QuantizerSpec:
    """Return the spec of rows of `width` weights.

    If the group does not divide `width`, it is halved, down to 16; otherwise a row has one scale.

    Raises:
        ArgumentError: the format is unknown, or does not support the group.
    """
    require_known("weight format", name, WEIGHT_FORMATS)
    spec = WEIGHT_FORMATS[name]
    if spec.group is not None:
        if group_size not in {None, spec.group}:
            raise ArgumentError(
                f"group_size is {group_size}; '{name}' has groups of {spec.group}. Write None."
            )
        group_size = spec.group
    own = fitting_group(group_size, width)
    if own != group_size:
        _LOGGER.warning(
            "Rows of %d weights are not a multiple of the group_size %d: they have %s.",
            *(width, group_size, "one scale each" if own is None else f"groups of {own}"),
        )
    return spec.replace(group=None, axis=0) if own is None else spec.replace(group=own)


@torch.no_grad()
def fitted_grid(
    weight: Tensor,
    spec: QuantizerSpec,
    energies: Tensor | None = None,
    *,
    half_scales: bool = False,
    half_quadratic: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the scale and zero point of each group or row of `weight` with the least error.

    Args:
        weight: o x i.
        spec: Scales by rows (axis 0) or by groups along them.
        energies: Weight of the squared errors for each input, i; all equal by default.
        half_scales: Round scales to float16, for files that support no other scales.
        half_quadratic: Minimise a sparse norm of errors (`half_quadratic_grid`), not squares.
    """
    width = weight.shape[1] if spec.group is None else spec.group
    rows = weight.float().reshape(-1, width)
    by_row = spec.replace(group=None, axis=0)
    counts = None
    if energies is not None:
        counts = energies.float().view(1, -1).expand(len(weight), -1).reshape(-1, width)
    share = best_shares(rows, by_row, counts)
    scale, zero = qparams_from_range(rows.amin(1) * share, rows.amax(1) * share, by_row)
    if half_quadratic:
        scale, zero = half_quadratic_grid(rows, (scale, zero), by_row)
    # files store scales in the weight's dtype: round with the same scales
    scale = scale.to(weight.dtype)
    return (scale.half() if half_scales else scale).float(), zero
