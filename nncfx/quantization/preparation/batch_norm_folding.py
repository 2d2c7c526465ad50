"""Batch norms that follow a layer, put into its weights: exact in evaluation mode.

Frozen ones, as detectors have, are modules of their own that hold buffers alone.
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
"""The attribute of an `nn.Identity` in a batch norm's place: the name of the layer that has it."""

_FROZEN: Final = frozenset({"weight", "bias", "running_mean", "running_var"})
_EPSILON: Final = 1e-5
"""Of a frozen norm that does not tell it, such as DETR's."""
_CLOSE: Final = 1e-5

_FEATURES_ONLY: Final = 2
"""Axes of a linear layer's output whose features are what the batch norm normalises."""


def fold_batch_norms(
    model: nn.Module, example_inputs: ExampleInputs, *, only_frozen: bool = False
) -> tuple[str, ...]:
    """Put batch norms into the layers before them, in place; return the names of those folded.

    Folded is a batch norm with running statistics that alone reads what a convolution or linear
    layer returns, where both are called once. It becomes an `nn.Identity`, and the layer has a
    bias. In evaluation mode the model computes what it did, up to rounding (the fold itself is
    computed in float64); in training mode it has no batch statistics any longer. The model keeps
    its class, and stays wrapped if it is.

    Args:
        model: Plain, or wrapped without hooks.
        example_inputs: With which to trace it.
        only_frozen: Leave those of torch alone, which runtimes fold themselves.

    Raises:
        ArgumentError: `model` has hooks, which would meet weights that they were not made for.
        TracingError: the model refuses the inputs.

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
    """Return the batch norms that can be folded, by name, and the layer before each."""
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
    """Return whether `module` holds what a batch norm does, and nothing that is trained."""
    if isinstance(module, _BatchNorm) or next(module.parameters(), None) is not None:
        return False
    held = dict(module.named_buffers())
    return held.keys() - {"num_batches_tracked"} == _FROZEN and all(
        held[name].shape == held["weight"].shape and held[name].ndim == 1 for name in _FROZEN
    )


@torch.no_grad()
def _is_affine(norm: nn.Module, axes: int) -> bool:
    """Return whether a frozen norm computes of each channel what its buffers say."""
    scale, shift = (one.view(-1, *[1] * (axes - 2)) for one in _affine(norm))
    x = torch.linspace(-1, 1, 2 * len(scale), device=scale.device).view(2, len(scale))
    x = x.view(*x.shape, *[1] * (axes - 2)).to(norm.get_buffer("weight"))
    try:
        found = norm(x)
    except (IndexError, RuntimeError, ValueError, TypeError):  # it takes other shapes
        return False
    expected = in_float64(x) * scale + shift
    return bool((found - expected).norm() <= _CLOSE * expected.norm())


def _affine(norm: nn.Module, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return by what a norm multiplies each channel, and what it adds, behind a layer's bias."""
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
    """Return which batch norms `fold_batch_norms` took out, with the layer each is in, by name."""
    modules = model.named_modules(remove_duplicate=False)
    return {name: vars(one)[_MARK] for name, one in modules if _MARK in vars(one)}


def without_norms(model: nn.Module, folded: Mapping[str, str]) -> None:
    """Take the `folded_norms` of a model out of a fresh one, in place; layers get a bias of zeros.

    Those that are out already stay so.

    Raises:
        StorageError: a batch norm or a layer is not there.
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
    """Return weight and bias of the layer that computes what the layer and then `norm` compute.

    Args:
        weight: o x i x *k; of a transposed convolution i x o/g x *k.
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
