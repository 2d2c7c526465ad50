"""Find the weights of a quantized model that a file can store as integers."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from nncfx.controllers.base.weights import constants_of
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.fake_quantize import FLOAT8_DTYPES, to_integers
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.storage.models.integer_tensor import IntegerTensor
from nncfx.storage.models.torch_bits import NAMES
from nncfx.tracing import WeightSite

_BYTE: Final = 8


def sole_quantizers(model: NNCFNetwork) -> dict[WeightSite, Quantizer]:
    """Return, by site, the quantizers of weights that have no other hook."""
    chains: dict[WeightSite, list[torch.nn.Module]] = {}
    for each in model.nncf.hooks:
        if isinstance(each.site, WeightSite):
            chains.setdefault(each.site, []).append(each.hook)
    return {
        site: hook
        for site, (hook, *others) in chains.items()
        if isinstance(hook, Quantizer) and not others
    }


@torch.no_grad()
def integer_weights(model: NNCFNetwork) -> dict[str, tuple[IntegerTensor, Quantizer]]:
    """Return the weights that are only read through one quantizer, as integers, with it.

    Quantizing the dequantized integers equals quantizing the float weight bitwise. Weights for
    which this does not hold (16 bits in half precision, NaN) are left out.

    Args:
        model: Model with constant quantizers; weights of learned quantizers are left out.

    Returns:
        Integers and quantizer by the first name of the weight.
    """
    quantizers = sole_quantizers(model)
    names: dict[object, list[str]] = {}
    tensors: Mapping[str, Tensor] = constants_of(model)
    for name, one in tensors.items():
        # a sparse tensor, such as the edges of a graph, has no data pointer
        has_place = one.numel() and one.layout == torch.strided
        place = (one.data_ptr(), one.shape, one.stride()) if has_place else id(one)
        names.setdefault(place, []).append(name)
    found = {}
    for same in names.values():
        hook, *others = {quantizers.get(WeightSite.of(name)) for name in same}
        if hook is None or others:
            continue
        stored = _stored(tensors[same[0]], hook)
        if stored is not None:
            found[same[0]] = (stored, hook)
    return found


def _stored(weight: Tensor, hook: Quantizer) -> IntegerTensor | None:
    if not hook.is_active or hook.is_learned or weight.dtype not in NAMES or weight.is_meta:
        return None
    made = on_grid(weight, hook.step, hook.zero, hook.spec)
    is_same = torch.equal(hook(made.dequantize()), hook(weight))
    return made if is_same else None


@torch.no_grad()
def on_grid(
    weight: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantizerSpec
) -> IntegerTensor:
    """Return a weight as the integers, float8 values or codes that `spec` rounds it to."""
    return IntegerTensor(
        values=to_integers(weight, scale, zero_point, spec).to(_dtype(spec)),
        scale=scale,
        zero_point=zero_point.to(torch.int32),
        bits=spec.bits,
        axis=spec.axis,
        group=spec.group,
        columns=spec.columns,
        codebook=spec.mode if spec.is_codebook else None,
        dtype=weight.dtype,
    )


def _dtype(spec: QuantizerSpec) -> torch.dtype:
    if spec.is_float8:
        return FLOAT8_DTYPES[spec.mode]
    if spec.is_codebook:
        return torch.uint8
    if spec.bits > _BYTE:
        return torch.int16 if spec.signed else torch.uint16
    return torch.int8 if spec.signed else torch.uint8
