"""Deformable convolution for the CPU, where torchvision's own operators do not load.

Some models of pytorchcv need it; `provide` registers it under torchvision's name, so that they run
as they are written, the operator one call. The schema is shared/tools/torchvision_on_cpu.py's.
"""

import importlib
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

__all__ = ["deform_conv2d", "provide"]


@cache
def provide() -> Any:  # noqa: ANN401 (a torch.library.Library, to be kept)
    """Give torchvision the operator, if it has no operators of its own; return what keeps it."""
    extension = importlib.import_module("torchvision.extension")
    if extension._has_ops():  # noqa: SLF001 (torchvision's own question)
        return None
    library = torch.library.Library("torchvision", "IMPL")
    library.impl("deform_conv2d", deform_conv2d, "CPU")
    extension._has_ops = lambda: True  # noqa: SLF001 (as above)
    return library


def deform_conv2d(
    data: torch.Tensor,
    weight: torch.Tensor,
    offset: torch.Tensor,
    mask: torch.Tensor,
    bias: torch.Tensor,
    *layout: int,
) -> torch.Tensor:
    """Return the deformable convolution of `n x c x h x w`, bilinear, zero outside the image.

    Args:
        data: `n x c x h x w`.
        weight: `o x c/groups x k x l`.
        offset: `n x 2*g*k*l x h' x w'`, y before x, by offset group and place in the kernel.
        mask: `n x g*k*l x h' x w'`, used if the last of `layout` says so.
        bias: `o`.
        layout: Strides, paddings and dilations, each y and x, weight groups, offset groups,
            whether to use the mask.

    Source: Dai et al., Deformable Convolutional Networks, 2017, equation 2; Zhu et al., 2019, 1.
    """
    stride, padding, dilation = layout[:2], layout[2:4], layout[4:6]
    groups, offset_groups, use_mask = layout[6:]
    (n, _, *size), (o, _, *kernel), out = data.shape, weight.shape, offset.shape[-2:]
    places = kernel[0] * kernel[1]
    moved = offset.view(n, offset_groups, places, 2, *out)
    grid = []
    for axis in (1, 0):  # grid_sample takes x before y
        start = torch.arange(out[axis]) * stride[axis] - padding[axis]
        step = torch.arange(kernel[axis]) * dilation[axis]
        step = step.repeat_interleave(kernel[1]) if axis == 0 else step.repeat(kernel[0])
        along = start[:, None] if axis == 0 else start[None, :]
        position = moved[:, :, :, axis] + step[:, None, None] + along
        grid.append(2 * position / max(size[axis] - 1, 1) - 1)
    sampled = F.grid_sample(
        data.reshape(n * offset_groups, -1, *size),
        torch.stack(grid, -1).reshape(n * offset_groups, -1, out[1], 2),
        align_corners=True,
    ).view(n, offset_groups, -1, places, *out)
    if use_mask:
        sampled = sampled * mask.view(n, offset_groups, 1, places, *out)
    columns = sampled.reshape(n, groups, -1, out[0] * out[1])
    result = torch.einsum("gok,ngkp->ngop", weight.reshape(groups, o // groups, -1), columns)
    return result.reshape(n, o, *out) + bias[:, None, None]
