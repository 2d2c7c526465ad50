"""Footprint: the bytes of a model's non-zero parameters."""

import torch
from torch import nn

__all__ = ["footprint_bytes", "nonzero_parameters"]


def nonzero_parameters(model: nn.Module) -> int:
    """Return the number of non-zero entries of all parameters (a shared one counts once)."""
    return sum(int(torch.count_nonzero(parameter)) for parameter in model.parameters())


def footprint_bytes(model: nn.Module) -> int:
    """Return the bytes of the non-zero parameters of `model`, each in its own dtype.

    No index is counted, nor are buffers: it is what a dense format cannot and a sparse format
    would at least need. For bytes on disk write the file.

    Source: Condensa (Joseph et al. 2020), section 4, objective 1.
    """
    return sum(
        int(torch.count_nonzero(parameter)) * parameter.element_size()
        for parameter in model.parameters()
    )
