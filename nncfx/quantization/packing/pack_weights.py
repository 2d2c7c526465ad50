"""Replace quantized layers by layers that hold codes, and back."""

import copy
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError, shortened
from nncfx.network import NNCFNetwork, strip, wrap
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.quantization.grid.spec import Mode, QuantizerSpec
from nncfx.quantization.grid.stored_weights import integer_weights
from nncfx.quantization.packing.adapters import let_merge
from nncfx.quantization.packing.codes import as_rows
from nncfx.quantization.packing.layers import PackedEmbedding, PackedLinear, PackedWeight
from nncfx.quantization.packing.linear_layers import is_turned
from nncfx.quantization.packing.parameters import (
    PackedParameter,
    pack_parameter,
    unpack_parameters,
)
from nncfx.quantization.placement.insertions import insert_quantizers, place_quantizers
from nncfx.storage.models.integer_tensor import IntegerTensor
from nncfx.tracing import ExampleInputs, WeightSite
from nncfx.tracing.calls.model_copy import copy_of

_LOGGER = logging.getLogger(__name__)
_ALGORITHM: Final = "weight_quantization"
_BYTE: Final = 8


def pack_weights(model: NNCFNetwork) -> nn.Module:
    """Return a plain copy of `model` that holds quantized weights as codes in memory.

    `nn.Linear` (and modules that compute the same), transformers' `Conv1D` and `nn.Embedding` with
    a matrix that is changed by one quantizer only become packed layers; tied matrices stay tied.
    Other weights (experts, convolutions) are decoded as a whole on each access. Weights with other
    hooks stay in float, as in `nncfx.strip`; a warning names those that are quantized.

    Raises:
        TracingError: a hook changes an activation.
    """
    found = integer_weights(model)
    plain = strip(model)
    stored = dict(plain.named_parameters(remove_duplicate=False))
    grids = {id(stored[name]): one for name, (one, _) in found.items() if name in stored}
    owners = owners_of_weights(plain)
    packed = {key for key in grids.keys() & owners if become_packed(owners[key], grids[key])}
    names = Counter(id(one) for one in stored.values())
    left = []
    for name, (one, _) in found.items():
        key = id(stored.get(name))
        if key in packed or key not in grids:
            continue
        is_alone = names[key] == 1 and one.bits <= _BYTE
        if not (is_alone and pack_parameter(plain, name, one)):
            left.append(name)
    if left:
        _LOGGER.warning(
            "%d quantized weights are rounded, but stay in float in memory: %s. Only those of "
            "at most 8 bits in one module are packed; .nncfx files hold the others as integers, "
            "too.",
            len(left),
            shortened(list(map(repr, left))),
        )
    mark_packed(plain)
    return plain


def owners_of_weights(model: nn.Module) -> dict[int, list[nn.Module]]:
    """Return the modules whose `weight` is a parameter, by its `id`."""
    owners: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        weight = module._parameters.get("weight")  # noqa: SLF001 (of any module)
        if weight is not None:
            owners.setdefault(id(weight), []).append(module)
    return owners


def become_packed(modules: Sequence[nn.Module], stored: IntegerTensor) -> bool:
    """Turn `modules`, which share a weight, into packed layers; either all or none.

    If one were left out, the weight would be in memory twice.
    """
    found = (packed_layer(one, stored) for one in modules)
    layers = [layer for layer in found if layer is not None]
    if len(layers) < len(modules):
        return False
    for module, layer in zip(modules, layers, strict=True):
        for key in ("codes", "scale", "zero_point"):
            setattr(layer, key, getattr(layers[0], key))
        become(module, layer)
    return True


def is_packed(model: nn.Module) -> bool:
    """Return whether `model` holds codes of weights in memory."""
    return any(isinstance(one, PackedWeight | PackedParameter) for one in model.modules())


def codes_fix(model: nn.Module) -> str:
    """Return a hint, after a space, if `model` has packed weights; else ""."""
    return " Its weights are codes: quantize the float model instead." if is_packed(model) else ""


def packed_layer(
    module: nn.Module, stored: IntegerTensor, *, is_by_rows: bool = False
) -> PackedWeight | None:
    """Return the packed layer of `module` with its matrix `stored`; `None` if there is none.

    `stored` has the layout of the module's weight or, if `is_by_rows`, always the outputs on
    axis 0.
    """
    if stored.values.ndim != 2 or stored.bits > _BYTE:  # noqa: PLR2004 (a matrix)
        return None
    if isinstance(module, nn.Embedding):
        # some classes in transformers scale the embeddings, or compute positions themselves
        if module.max_norm is not None or type(module).forward is not nn.Embedding.forward:
            return None
        return PackedEmbedding(stored, module.padding_idx)
    turned = is_turned(module)
    if turned is None:
        return None
    bias = module._parameters.get("bias")  # noqa: SLF001 (may be missing)
    by_rows = as_rows(stored, turned=turned and not is_by_rows)
    return PackedLinear(by_rows, bias, is_turned=turned)


def become(module: nn.Module, made: nn.Module) -> None:
    """Turn `module` into `made` in place, so all references to it, as in lists, see the change."""
    made.train(module.training)
    module.__class__ = type(made)
    vars(module).clear()
    vars(module).update(vars(made))


def spec_of(stored: IntegerTensor) -> QuantizerSpec:
    """Return the spec of the grid of `stored`."""
    mode: Mode = "symmetric"
    if stored.codebook is not None:
        mode = "nf4" if stored.codebook == "nf4" else "float4_e2m1"
    elif stored.values.dtype.is_floating_point:
        mode = "float8_e5m2" if stored.values.dtype == torch.float8_e5m2 else "float8_e4m3"
    elif bool(stored.zero_point.any()):
        mode = "asymmetric"
    return QuantizerSpec(
        bits=stored.bits,
        mode=mode,
        signed=stored.values.dtype != torch.uint8 or stored.codebook is not None,
        axis=stored.axis,
        group=stored.group,
        columns=stored.columns,
    )


def mark_packed(model: nn.Module, *, is_packed: bool = True) -> None:
    """Make `save_pretrained` write codes in the file format, and adapters refuse to be merged.

    This changes models of transformers and adapters of PEFT in `model`; if not `is_packed`, it
    restores them.
    """
    let_merge(model, is_packed=is_packed)
    package = sys.modules.get("transformers.modeling_utils")
    kind: type[nn.Module] | None = getattr(package, "PreTrainedModel", None)
    if kind is None:
        return
    for module in model.modules():
        if isinstance(module, kind):
            from nncfx.quantization.packing.pretrained_quantizer import PretrainedQuantizer

            if is_packed:
                vars(module)["hf_quantizer"] = PretrainedQuantizer()
            elif isinstance(vars(module).get("hf_quantizer"), PretrainedQuantizer):
                del vars(module)["hf_quantizer"]
                config = copy.copy(vars(module)["config"])
                vars(config).pop("quantization_config", None)
                vars(module)["config"] = config


def unpack_weights(model: nn.Module, example_inputs: ExampleInputs) -> NNCFNetwork:
    """Return a wrapped copy of `model` with float layers and quantizers instead of packed layers.

    It computes the same as `model` up to rounding, and can be exported by `export_onnx` or trained
    further. It is traced with `example_inputs`.

    Raises:
        ArgumentError: there is no packed layer.
    """
    plain = copy_of(model)
    stored: dict[str, IntegerTensor] = {}
    shared: dict[int, nn.Parameter] = {}
    for name, module in list(plain.named_modules(remove_duplicate=False)):
        if isinstance(module, PackedWeight):
            key = module.codes.data_ptr()
            integers = module.integers()
            if key not in shared:
                shared[key] = nn.Parameter(integers.dequantize(), requires_grad=False)
            become(module, _float_layer(module, shared[key]))
            stored[f"{name}.weight".lstrip(".")] = integers
    stored |= unpack_parameters(plain)
    mark_packed(plain, is_packed=False)
    if not stored:
        raise ArgumentError(
            f"{type(model).__name__} has no packed layer, so there is nothing to unpack. Pass "
            "what quantize_weights(..., pack=True) returned."
        )
    wrapped = wrap(plain, example_inputs)
    quantizers = tuple(
        PlannedQuantizer(
            name=f"{name}|WEIGHT",
            role="weight",
            spec=spec_of(one),
            sites=(WeightSite.of(name),),
            scales=one.scale.numel(),
        )
        for name, one in stored.items()
    )
    plan = QuantizationPlan("any target", quantizers, algorithm=_ALGORITHM)
    hooks = place_quantizers(wrapped, plan)
    for hook in hooks:
        integers = stored[hook.planned.parameter]
        hook.set_qparams(integers.scale, integers.zero_point)
    insert_quantizers(wrapped, hooks)
    return wrapped


def _float_layer(module: PackedWeight, weight: nn.Parameter) -> nn.Module:
    outputs, inputs = module.shape
    layer: nn.Module
    if isinstance(module, PackedEmbedding):
        layer = nn.Embedding(outputs, inputs, padding_idx=module.padding_idx, device="meta")
    else:
        layer = nn.Linear(inputs, outputs, bias=module.bias is not None, device="meta")
        if isinstance(module.bias, Tensor):
            layer.bias = nn.Parameter(module.bias.detach(), requires_grad=False)
    layer.weight = weight
    return layer
