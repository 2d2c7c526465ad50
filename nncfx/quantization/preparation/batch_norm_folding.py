"""Batch norms that follow a layer, put into its weights: exact in evaluation mode."""

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

__all__ = ["fold_batch_norms", "folded", "folded_norms", "without_norms"]

_MARK: Final = "_nncfx_folded_into"
"""The attribute of an `nn.Identity` in a batch norm's place: the name of the layer that has it."""

_FEATURES_ONLY: Final = 2
"""Axes of a linear layer's output whose features are what the batch norm normalises."""


def fold_batch_norms(model: nn.Module, example_inputs: ExampleInputs) -> tuple[str, ...]:
    """Put batch norms into the layers before them, in place; return the names of those folded.

    Folded is a batch norm with running statistics that alone reads what a convolution or linear
    layer returns, where both are called once. It becomes an `nn.Identity`, and the layer has a
    bias. In evaluation mode the model computes what it did, up to rounding (the fold itself is
    computed in float64); in training mode it has no batch statistics any longer. The model keeps
    its class, and stays wrapped if it is.

    Args:
        model: Plain, or wrapped without hooks.
        example_inputs: With which to trace it.

    Raises:
        ArgumentError: `model` has hooks, which would meet weights that they were not made for.
        TracingError: the model refuses the inputs.

    Source: Jacob et al. 2018, Quantization and Training of Neural Networks, section 3.2.
    """
    pairs = _pairs(model, graph_without_hooks(model, example_inputs))
    wrapped = isinstance(model, NNCFNetwork)
    plain = unwrap(model) if wrapped else model
    for name, layer in pairs.items():
        _fold(plain, layer, name)
    if wrapped:
        wrap(plain, example_inputs)
    return tuple(pairs)


def _pairs(model: nn.Module, graph: NNCFGraph) -> dict[str, Layer]:
    """Return the batch norms that can be folded, by name, and the layer before each."""
    calls = [one.module for one in graph.operations if one.function == "batch_norm"]
    modules = dict(model.named_modules())
    pairs = {}
    for address, layer in find_layers(model, graph).items():
        following = list(readers(graph, address))
        reader = following[0] if len(following) == 1 else None
        if reader is None or reader.function != "batch_norm" or calls.count(reader.module) > 1:
            continue
        norm = modules.get(reader.module)
        axes = len(layer.operation.outputs[0].shape)
        fits = layer.operation.function != "linear" or axes == _FEATURES_ONLY
        if fits and isinstance(norm, _BatchNorm) and norm.running_var is not None:
            pairs[reader.module] = layer
    return pairs


def _fold(model: nn.Module, layer: Layer, name: str) -> None:
    norm = model.get_submodule(name)
    assert isinstance(norm, _BatchNorm)  # noqa: S101 (as _pairs found it)
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
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, gone)


def folded_norms(model: nn.Module) -> dict[str, str]:
    """Return which batch norms `fold_batch_norms` took out, with the layer each is in, by name."""
    modules = model.named_modules(remove_duplicate=False)
    return {name: vars(one)[_MARK] for name, one in modules if _MARK in vars(one)}


def without_norms(model: nn.Module, folded: Mapping[str, str]) -> None:
    """Take batch norms out of a fresh model, in place; their layers get a bias of zeros.

    Args:
        model: Plain, with its batch norms; those that are out already stay so.
        folded: What `folded_norms` returned for the model in which they are folded.

    Raises:
        StorageError: a batch norm or a layer is not there.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, layer in folded.items():
        if name in modules and _MARK in vars(modules[name]):
            continue
        norm, target = modules.get(name), modules.get(layer)
        weight = getattr(target, "weight", None)
        if not isinstance(norm, _BatchNorm) or target is None or not isinstance(weight, Tensor):
            raise StorageError(
                f"In the file the batch norm '{name}' is folded into '{layer}', and the model has "
                f"no such pair.{did_you_mean(name, modules)} Build it from the class that was "
                "saved.",
            )
        if target._parameters.get("bias") is None:  # noqa: SLF001 (a name with None is no attribute)
            bias = torch.zeros(norm.num_features, dtype=weight.dtype, device=weight.device)
            target.bias = nn.Parameter(bias, requires_grad=weight.requires_grad)
        _take_out(model, name, layer)


@torch.no_grad()
def folded(
    weight: Tensor,
    bias: Tensor | None,
    norm: _BatchNorm,
    *,
    transposed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the layer that computes what the layer and then `norm` compute.

    Args:
        weight: o x i x *k; of a transposed convolution i x o/g x *k.
        bias: o, or `None` for zero.
        norm: A batch norm of o channels with running statistics.
        transposed: 0, or the groups g of a transposed convolution.
    """
    mean, variance = (norm.get_buffer(f"running_{one}") for one in ("mean", "var"))
    mean = mean if bias is None else in_float64(mean) - in_float64(bias)
    scale, shift = norm_affine((mean, variance), norm.eps, norm.weight, norm.bias)
    if transposed:
        parts = in_float64(weight).view(transposed, -1, *weight.shape[1:])
        factors = scale.view(transposed, 1, -1, *[1] * (weight.ndim - 2))
        scaled = (parts * factors).flatten(0, 1)
    else:
        scaled = in_float64(weight) * scale.view(-1, *[1] * (weight.ndim - 1))
    return scaled.to(weight), shift.to(weight)
