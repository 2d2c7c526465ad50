"""Footprint: the bytes of a model's non-zero parameters."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from nncfx.schemes.operators import int8_grid
from nncfx.tracing import WeightSite

__all__ = ["footprint_bytes", "nonzero_parameters"]


def nonzero_parameters(model: nn.Module) -> int:
    """Return the number of non-zero entries of all parameters (a shared one counts once)."""
    return sum(int(torch.count_nonzero(parameter)) for parameter in model.parameters())


def footprint_bytes(model: nn.Module) -> int:
    """Return the bytes of the non-zero parameters of `model`, each at the bits it needs.

    A weight with a quantizer has the bits of its grid (4 bits are half a byte), and so has one
    whose values lie on `operators.int8_grid`, as `Quantize("int8")` leaves them: they are stored
    as one byte. All others have those of their dtype. No index is counted, nor are scales and
    buffers: it is what a dense format cannot and a sparse format would at least need. For bytes
    on disk write the file.

    Source: Condensa (Joseph et al. 2020), section 4, objective 1.
    """
    quantized = _quantized_bits(model)
    bits = sum(
        int(torch.count_nonzero(one)) * quantized.get(id(one), _bits(one))
        for one in model.parameters()
    )
    return -(-bits // 8)


def _bits(parameter: nn.Parameter) -> int:
    """Return the bits that each entry needs, by its dtype or its values."""
    width = 8 * parameter.element_size()
    is_weight = parameter.ndim > 1 and parameter.is_floating_point() and not parameter.is_meta
    return 8 if is_weight and width > 8 and _is_on_int8_grid(parameter.detach()) else width  # noqa: PLR2004 (a byte)


def _is_on_int8_grid(weight: torch.Tensor) -> bool:
    # a row of trained weights hardly is: one tells, before all are rounded
    first = weight[:1]
    if not (torch.isfinite(weight).all() and torch.equal(int8_grid(first), first)):
        return False
    return torch.equal(int8_grid(weight), weight)


def _quantized_bits(model: nn.Module) -> Mapping[int, int]:
    """Return the bits of the parameters that quantizers round, by their identity."""
    hooks: Iterable[Any] = getattr(getattr(model, "nncf", None), "hooks", ())
    stored = dict(model.named_parameters(remove_duplicate=False))
    return {
        id(stored[str(one.site)]): one.hook.storage_bits
        for one in hooks
        if isinstance(one.site, WeightSite)
        and str(one.site) in stored
        and isinstance(getattr(one.hook, "storage_bits", None), int)
    }
