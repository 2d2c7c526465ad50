"""Batch norms of half the bytes: what is known at the end of training becomes constants."""

from collections import Counter

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["absorb_norm_statistics"]


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
        # in float64, so that only the results are rounded
        root = (variance.double() + norm.eps).sqrt()
        scale = norm.weight.double() / root
        norm.bias.copy_(norm.bias.double() - mean.double() * scale)
        norm.weight.copy_(scale * (1 + norm.eps) ** 0.5)
        mean.zero_()
        variance.fill_(1)
        absorbed.append(name)
    return tuple(absorbed)
