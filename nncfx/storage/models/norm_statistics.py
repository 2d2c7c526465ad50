"""Express batch norms in evaluation mode as one factor and one shift per channel."""

from collections import Counter

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx.float64 import in_float64


@torch.no_grad()
def norm_affine(
    statistics: tuple[Tensor, Tensor], epsilon: float, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the factor and the shift of each channel of a batch norm in evaluation mode.

    Both are float64, so only results computed from them are rounded.

    Args:
        statistics: The running mean, minus the bias of a layer folded with the norm, and the
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
    """Fold running statistics of batch norms into weight and bias, in place; return their names.

    Means become 0 and variances 1, which take no space in a file; the batch norms of a small,
    heavily pruned network are a sixth of its file. In evaluation mode results stay the same, up to
    rounding. In training mode they change, so do this at the end, before `save`.

    Norms without weight and bias or without running statistics, and norms that share one of these
    tensors with another module, stay as they are.

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
        for tensor in (*module._parameters.values(), *module._buffers.values())  # noqa: SLF001 (own tensors, once for each owner)
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
