"""The second moments of what a layer's rows are multiplied with."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nncfx.schemes.wide_floats import wide

__all__ = ["input_moments"]


def input_moments(entering: Tensor, module: nn.Module, *, images: int = 1) -> Tensor:
    """Return the sum of x x^T over all that each row of the weight is multiplied with.

    Args:
        entering: What the layer reads: n x i x *k of a convolution of one or two axes, n x ... x i
            of any other layer.
        module: The layer.
        images: So many are looked at together; the patches of all would be larger than the
            model's own activations.

    Returns:
        groups x m x m, where m is the length of a row of the flattened weight; float32 at least.
    """
    entering = wide(entering)
    if not isinstance(module, nn.Conv1d | nn.Conv2d):
        rows = entering.reshape(-1, entering.shape[-1])
        return (rows.T @ rows).unsqueeze(0)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    sizes: list[tuple[int, ...]] = [module.kernel_size, module.dilation, module.stride]
    is_flat = isinstance(module, nn.Conv1d)
    if is_flat:
        sizes = [(1, *one) for one in sizes]
    total = torch.zeros((), device=entering.device)
    for part in torch.split(entering, images):
        padded = F.pad(part, module._reversed_padding_repeated_twice, mode)  # noqa: SLF001 (torch's own padding, "same" included)
        image = padded.unsqueeze(2) if is_flat else padded
        patches = F.unfold(image, sizes[0], sizes[1], 0, sizes[2])
        grouped = patches.view(len(patches), module.groups, -1, patches.shape[2])
        grouped = grouped.permute(1, 2, 0, 3).flatten(2)
        total = total + grouped @ grouped.mT
    return total
