"""Fold batch norms into the weights of the layers before them; exact in evaluation mode.

Frozen batch norms, as in detectors, are custom modules that hold only buffers.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx.errors import StorageError, did_you_mean
from nncfx.float64 import in_float64
from nncfx.graph import NNCFGraph
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.quantization.preparation.layer_chains import (
    Layer,
    TransposedConv,
    find_layers,
    graph_without_hooks,
    readers,
)
from nncfx.storage.models.norm_statistics import norm_affine
from nncfx.tracing import ExampleInputs

_MARK: Final = "_nncfx_folded_into"
"""Attribute of the `nn.Identity` that replaces a batch norm; it names the layer folded into."""

_FROZEN: Final = frozenset({"weight", "bias", "running_mean", "running_var"})
_EPSILON: Final = 1e-5
"""Epsilon of a frozen norm without an `eps` attribute, such as DETR's."""
_CLOSE: Final = 1e-5

_FEATURES_ONLY: Final = 2
"""Axes of a linear layer's output if the batch norm normalises its features."""


def fold_batch_norms(
    model: nn.Module, example_inputs: ExampleInputs, *, only_frozen: bool = False
) -> tuple[str, ...]:
    """Fold batch norms into the layers before them, in place; return the names of the norms.

    A batch norm is folded if it has running statistics and is the only reader of the result of a
    convolution or linear layer, and both are called once. It is replaced by an `nn.Identity`, and
    the layer gets a bias. In evaluation mode the model computes the same up to rounding (the fold
    is computed in float64); in training mode it no longer uses batch statistics. The model keeps
    its class, and stays wrapped if it is.

    Args:
        model: Plain, or wrapped without hooks.
        example_inputs: Inputs to trace it with.
        only_frozen: Do not fold torch's own batch norms, which runtimes fold themselves.

    Raises:
        ArgumentError: `model` has hooks, which do not fit the changed weights.
        TracingError: the model fails on the inputs.

    Source: Jacob et al. 2018, Quantization and Training of Neural Networks, section 3.2.
    """
    frozen = {name for name, one in model.named_modules() if _is_frozen(one)}
    if only_frozen and not frozen:
        return ()
    pairs = _pairs(model, graph_without_hooks(model, example_inputs))
    if only_frozen:
        pairs = {name: layer for name, layer in pairs.items() if name in frozen}
    wrapped = isinstance(model, NNCFNetwork)
    plain = unwrap(model) if wrapped else model
    for name, layer in pairs.items():
        _fold(plain, layer, name)
    if wrapped:
        wrap(plain, example_inputs)
    return tuple(pairs)


def _pairs(model: nn.Module, graph: NNCFGraph) -> dict[str, Layer]:
    """Return the layer before each batch norm that can be folded, by the norm's name."""
    module_of = {one.address: one.module for one in graph.operations}
    entered = [(module_of.get(one.source), module_of.get(one.target)) for one in graph.edges]
    calls = [target for source, target in entered if target != source]
    modules = dict(model.named_modules())
    pairs = {}
    for address, layer in find_layers(model, graph).items():
        following = list(readers(graph, address))
        reader = following[0] if len(following) == 1 else None
        norm = None if reader is None else modules.get(reader.module)
        if reader is None or norm is None or calls.count(reader.module) > 1:
            continue
        axes = len(layer.operation.outputs[0].shape)
        fits = layer.operation.function != "linear" or axes == _FEATURES_ONLY
        is_own = reader.function == "batch_norm" and isinstance(norm, _BatchNorm)
        if fits and (
            (is_own and norm.running_var is not None)
            or (_is_frozen(norm) and _is_affine(norm, axes))
        ):
            pairs[reader.module] = layer
    return pairs


def _is_frozen(module: nn.Module) -> bool:
    """Return whether `module` has the buffers of a batch norm and no parameters."""
    if isinstance(module, _BatchNorm) or next(module.parameters(), None) is not None:
        return False
    held = dict(module.named_buffers())
    return held.keys() - {"num_batches_tracked"} == _FROZEN and all(
        held[name].shape == held["weight"].shape and held[name].ndim == 1 for name in _FROZEN
    )


@torch.no_grad()
def _is_affine(norm: nn.Module, axes: int) -> bool:
    """Return whether a frozen norm applies the affine function of its buffers to each channel."""
    scale, shift = (one.view(-1, *[1] * (axes - 2)) for one in _affine(norm))
    x = torch.linspace(-1, 1, 2 * len(scale), device=scale.device).view(2, len(scale))
    x = x.view(*x.shape, *[1] * (axes - 2)).to(norm.get_buffer("weight"))
    try:
        found = norm(x)
    except (IndexError, RuntimeError, ValueError, TypeError):  # it expects other shapes
        return False
    expected = in_float64(x) * scale + shift
    return bool((found - expected).norm() <= _CLOSE * expected.norm())


def _affine(norm: nn.Module, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return factor and summand of a norm for each channel, after a layer with this bias."""
    mean, variance = (norm.get_buffer(f"running_{one}") for one in ("mean", "var"))
    mean = mean if bias is None else in_float64(mean) - in_float64(bias)
    epsilon = float(getattr(norm, "eps", _EPSILON))
    return norm_affine((mean, variance), epsilon, _held(norm, "weight"), _held(norm, "bias"))


def _held(norm: nn.Module, name: str) -> Tensor | None:
    held: Tensor | None = getattr(norm, name)
    return held


def _fold(model: nn.Module, layer: Layer, name: str) -> None:
    norm = model.get_submodule(name)
    axis_of_groups = layer.groups if isinstance(layer.module, TransposedConv) else 0
    weight, bias = folded(layer.weight.detach(), layer.bias, norm, transposed=axis_of_groups)
    layer.weight.data = weight
    if layer.bias is None:
        layer.module.bias = nn.Parameter(bias, requires_grad=layer.weight.requires_grad)
    else:
        layer.bias.data = bias
    _take_out(model, name, layer.operation.module)


def _take_out(model: nn.Module, name: str, layer: str) -> None:
    gone = nn.Identity().train(model.get_submodule(name).training)
    vars(gone)[_MARK] = layer
    model.set_submodule(name, gone)


def folded_norms(model: nn.Module) -> dict[str, str]:
    """Return, by name, the batch norms that `fold_batch_norms` folded, with their layers."""
    modules = model.named_modules(remove_duplicate=False)
    return {name: vars(one)[_MARK] for name, one in modules if _MARK in vars(one)}


def without_norms(model: nn.Module, folded: Mapping[str, str]) -> None:
    """Remove the batch norms in `folded` from a fresh model, in place.

    Layers get a bias of zeros if they have none. Norms that are already removed are skipped.

    Raises:
        StorageError: a batch norm or a layer is missing.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, layer in folded.items():
        if name in modules and _MARK in vars(modules[name]):
            continue
        norm, target = modules.get(name), modules.get(layer)
        weight = getattr(target, "weight", None)
        is_norm = norm is not None and (isinstance(norm, _BatchNorm) or _is_frozen(norm))
        if norm is None or not is_norm or target is None or not isinstance(weight, Tensor):
            raise StorageError(
                f"In the file the batch norm '{name}' is folded into '{layer}', and the model has "
                f"no such pair.{did_you_mean(name, modules)} Build it from the class that was "
                "saved."
            )
        if target._parameters.get("bias") is None:  # noqa: SLF001 (a name with None is no attribute)
            count = len(norm.get_buffer("running_mean"))
            bias = torch.zeros(count, dtype=weight.dtype, device=weight.device)
            target.bias = nn.Parameter(bias, requires_grad=weight.requires_grad)
        _take_out(model, name, layer)


@torch.no_grad()
def folded(
    weight: Tensor, bias: Tensor | None, norm: nn.Module, *, transposed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a layer that equals the given layer followed by `norm`.

    Args:
        weight: o x i x *k; for a transposed convolution i x o/g x *k.
        bias: o, or `None` for zero.
        norm: A batch norm of o channels with running statistics, or a frozen one.
        transposed: 0, or the groups g of a transposed convolution.
    """
    scale, shift = _affine(norm, bias)
    if transposed:
        parts = in_float64(weight).view(transposed, -1, *weight.shape[1:])
        factors = scale.view(transposed, 1, -1, *[1] * (weight.ndim - 2))
        scaled = (parts * factors).flatten(0, 1)
    else:
        scaled = in_float64(weight) * scale.view(-1, *[1] * (weight.ndim - 1))
    return scaled.to(weight), shift.to(weight)
