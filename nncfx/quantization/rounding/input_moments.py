"""Second moments of the vectors that the rows of a layer's weight are multiplied by."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nncfx.schemes.wide_floats import wide


def input_moments(
    entering: Tensor, module: nn.Module, width: int | None = None, *, images: int = 1
) -> list[Tensor]:
    """Return the sum of x x^T over all vectors x that rows of the weight are multiplied by.

    Args:
        entering: Input of the layer: n x i x *k for a convolution of one or two axes, n x ... x i
            for any other layer.
        module: The layer.
        width: Width of the blocks on the diagonal, in inputs; the last one can be narrower.
            Entries outside the blocks are not computed. None: one block.
        images: Images processed at once; the patches of all images could be larger than the
            activations of the model.

    Returns:
        For each block groups x k x k, where k is its width; widths sum to the length of a row of
        the flattened weight. Float32 at least.
    """
    entering = wide(entering)
    if not isinstance(module, nn.Conv1d | nn.Conv2d):
        rows = entering.reshape(1, -1, entering.shape[-1])
        return [one.mT @ one for one in torch.split(rows, width or rows.shape[2], 2)]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    sizes: list[tuple[int, ...]] = [module.kernel_size, module.dilation, module.stride]
    is_flat = isinstance(module, nn.Conv1d)
    if is_flat:
        sizes = [(1, *one) for one in sizes]
    totals: list[Tensor] = []
    for part in torch.split(entering, images):
        padded = F.pad(part, module._reversed_padding_repeated_twice, mode)  # noqa: SLF001 (torch's own padding, "same" included)
        image = padded.unsqueeze(2) if is_flat else padded
        patches = F.unfold(image, sizes[0], sizes[1], 0, sizes[2])
        grouped = patches.view(len(patches), module.groups, -1, patches.shape[2])
        grouped = grouped.permute(1, 2, 0, 3).flatten(2)
        found = [one @ one.mT for one in torch.split(grouped, width or grouped.shape[1], 1)]
        totals = [a + b for a, b in zip(totals, found, strict=True)] if totals else found
    return totals
