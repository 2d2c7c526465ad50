"""Batch norms at the end of training: one factor and one shift per channel."""

from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx.float64 import in_float64


@torch.no_grad()
def norm_affine(
    statistics: tuple[Tensor, Tensor], epsilon: float, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return what a batch norm multiplies each channel by in evaluation mode, and what it adds.

    Both are float64, so that only what is made of them is rounded.

    Args:
        statistics: The running mean, less the bias of a layer that is folded with it, and the
            running variance; c each.
        epsilon: Added to the variance.
        weight: c, or None for 1.
        bias: c, or None for 0.
    """
    mean, variance = (in_float64(one) for one in statistics)
    root = (variance + epsilon).sqrt()
    factor = 1 / root if weight is None else in_float64(weight) / root
    shift = -mean * factor
    return factor, shift if bias is None else in_float64(bias) + shift


@torch.no_grad()
def absorb_norm_statistics(model: nn.Module) -> tuple[str, ...]:
    """Put running statistics of batch norms into weight and bias, in place; return their names.

    Means become 0 and variances 1, which cost a file nothing: the batch norms of a small network
    that is pruned hard are a sixth of it. In evaluation mode the model computes what it did, up to
    rounding. In training mode it does not: do this at the end, before `save`.

    Left alone are norms without weight and bias, without running statistics, and those that share
    one of these tensors with another module.

    >>> norm = nn.BatchNorm1d(2).eval()
    >>> _ = norm.running_mean.add_(3.0)
    >>> absorb_norm_statistics(nn.Sequential(norm))
    ('0',)
    >>> norm.bias.tolist(), norm.running_mean.tolist()
    ([-2.9999849796295166, -2.9999849796295166], [0.0, 0.0])
    """
    owners = Counter(
        id(tensor)
        for module in model.modules()
        for tensor in (*module._parameters.values(), *module._buffers.values())  # noqa: SLF001 (own ones, once for each owner)
        if tensor is not None
    )
    absorbed = []
    for name, norm in model.named_modules():
        if not isinstance(norm, _BatchNorm) or not norm.affine:
            continue
        mean, variance = norm.running_mean, norm.running_var
        if mean is None or variance is None:
            continue
        if any(owners[id(one)] > 1 for one in (mean, variance, norm.weight, norm.bias)):
            continue
        factor, shift = norm_affine((mean, variance), norm.eps, norm.weight, norm.bias)
        norm.bias.copy_(shift)
        norm.weight.copy_(factor * (1 + norm.eps) ** 0.5)
        mean.zero_()
        variance.fill_(1)
        absorbed.append(name)
    return tuple(absorbed)
