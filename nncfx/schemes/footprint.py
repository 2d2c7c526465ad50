"""Footprint: the bytes of a model's non-zero parameters."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.schemes.operators import int8_grid
from nncfx.storage.models.whole_models import require_numbers
from nncfx.tracing import WeightSite
from nncfx.tracing.hooks.store import own_parameters

_BYTE = 8


def nonzero_parameters(model: nn.Module) -> int:
    """Return the number of non-zero entries of all parameters (a shared one counts once).

    Parameters of hooks, such as quantizer steps, do not count.

    Raises:
        ArgumentError: a parameter has a format of another library (torchao).
    """
    return sum(int(torch.count_nonzero(parameter)) for parameter in _counted(model))


def footprint_bytes(model: nn.Module) -> int:
    """Return the bytes of the non-zero parameters of `model`, each at the bits it needs.

    A weight with a quantizer counts at the bits of its grid (4 bits are half a byte). A weight
    whose values lie on `operators.int8_grid`, as after `Quantize("int8")`, counts one byte per
    entry, as it is stored. All others count at the bits of their dtype. Indices, scales and
    buffers are not counted: the result is a lower bound for sparse formats, which dense formats
    cannot reach. For bytes on disk, write the file.

    Raises:
        ArgumentError: a parameter has a format of another library (torchao).

    Source: Condensa (Joseph et al. 2020), section 4, objective 1.
    """
    quantized = _quantized_bits(model)
    bits = sum(
        int(torch.count_nonzero(one)) * quantized.get(id(one), _bits(one))
        for one in _counted(model)
    )
    return -(-bits // _BYTE)


def _counted(model: nn.Module) -> Iterator[nn.Parameter]:
    for one in own_parameters(model):
        require_numbers(one, f"A parameter of {type(model).__name__}", ArgumentError)
        yield one


def _bits(parameter: nn.Parameter) -> int:
    """Return the bits that each entry needs, by its dtype or its values."""
    width = _BYTE * parameter.element_size()
    is_wide = parameter.is_floating_point() and width > _BYTE
    has_rows = parameter.ndim > 1 and parameter.numel() > 0 and not parameter.is_meta
    return _BYTE if is_wide and has_rows and _is_on_int8_grid(parameter.detach()) else width


def _is_on_int8_grid(weight: torch.Tensor) -> bool:
    magnitudes = weight.flatten(1).abs()
    between = (magnitudes > 0) & (magnitudes < magnitudes.amax(1, keepdim=True))
    if not (torch.isfinite(weight).all() and between.any()):
        return False  # zeros and a single magnitude do not determine a grid
    # a row of trained weights is rarely on a grid, so check one row before rounding all
    first = weight[:1]
    return torch.equal(int8_grid(first), first) and torch.equal(int8_grid(weight), weight)


def _quantized_bits(model: nn.Module) -> Mapping[int, int]:
    """Return the bits of the parameters that quantizers round, by `id`."""
    hooks: Iterable[Any] = getattr(getattr(model, "nncf", None), "hooks", ())
    stored = dict(model.named_parameters(remove_duplicate=False))
    return {
        id(stored[str(one.site)]): one.hook.storage_bits
        for one in hooks
        if isinstance(one.site, WeightSite)
        and str(one.site) in stored
        and isinstance(getattr(one.hook, "storage_bits", None), int)
    }
