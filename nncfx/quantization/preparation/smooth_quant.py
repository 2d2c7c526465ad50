"""SmoothQuant: move outliers of activations into the weights that read them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.graph import NNCFGraph, Operation
from nncfx.operators import LINEAR_LAYERS
from nncfx.quantization.preparation.equalization import input_ranges, scale_inputs
from nncfx.quantization.preparation.layer_chains import (
    Layer,
    find_layers,
    graph_without_hooks,
    shared_parameters,
)
from nncfx.quantization.ranges.observation import run_batches, warn_if_none
from nncfx.schemes.wide_floats import wide
from nncfx.tracing import ExampleInputs

_NORMS: Final = ("layer_norm", "rms_norm")
_PRODUCTS: Final = ("__mul__", "__rmul__")
_VIEWS: Final = ("view", "reshape")


def smooth_layers(
    model: nn.Module,
    batches: Iterable[ExampleInputs],
    example_inputs: ExampleInputs,
    *,
    alpha: float = 0.5,
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Move outliers into the linear layers that read them, in place; return what was changed.

    Each entry is the address of an operation whose result is read by linear layers only (a norm
    with a weight, a product with a parameter of one entry per channel, or a linear layer), and
    the names of these layers. The parameters of the operation are divided per channel, and the
    weights of the layers are multiplied, so the model computes the same up to rounding. An
    operation with other readers, such as a norm that a residual path reads, is not changed.

    Args:
        model: Plain, or wrapped without hooks; it runs in evaluation mode.
        batches: Inputs of the model, at least one.
        example_inputs: Inputs to trace it with.
        alpha: How much of the outliers moves into the weights, in [0, 1].

    Raises:
        ArgumentError: `alpha` is out of range, there are no batches, or `model` has hooks.
        TracingError: the model fails on the inputs.

    Source: Xiao et al. 2023, SmoothQuant, equations 3 and 4.
    """
    if not 0 <= alpha <= 1:
        raise ArgumentError(
            f"alpha is {alpha}; it is the share of the outliers that goes into the weights and "
            "lies in [0, 1]. Write 0.5 for even shares."
        )
    found = smoothable(model, graph_without_hooks(model, example_inputs))
    warn_if_none(found, "Smoothing", "norm, product or linear layer that linear layers alone read")
    peaks = _input_peaks(model, [layers[0] for _, _, layers in found], batches)
    for (_, scaled, layers), peak in zip(found, peaks, strict=True):
        weights = torch.stack([input_ranges(one, len(peak)) for one in layers]).amax(0)
        scales = smoothing_scales(peak, weights, alpha)
        for tensor in scaled:
            tensor.div_(scales.view(-1, *[1] * (tensor.ndim - 1)))
        for layer in layers:
            scale_inputs(layer, scales)
    return tuple(
        (operation.address, tuple(one.name for one in layers)) for operation, _, layers in found
    )


def smoothing_scales(activations: Tensor, weights: Tensor, alpha: float) -> Tensor:
    """Return the factors that activations are divided by and weights multiplied by, c.

    Args:
        activations: Largest magnitude of each channel, c.
        weights: Largest magnitude of the weights that read each channel, c.
        alpha: In [0, 1].

    Where either is zero, the factor is 1.

    Source: Xiao et al. 2023, SmoothQuant, equation 4.

    >>> smoothing_scales(torch.tensor([16.0, 1.0, 0.0]), torch.tensor([4.0, 1.0, 1.0]), 0.5)
    tensor([2., 1., 1.])
    """
    scales = activations**alpha / weights ** (1 - alpha)
    return torch.where((activations > 0) & (weights > 0), scales, torch.ones_like(scales))


Smoothable = tuple[Operation, list[Tensor], list[Layer]]


def smoothable(model: nn.Module, graph: NNCFGraph) -> list[Smoothable]:
    """Return each producer, the tensors that scale its result, and the layers that read it."""
    linears = find_layers(model, graph, LINEAR_LAYERS)
    producers = {**find_layers(model, graph, _NORMS), **linears}
    found = []
    for operation in graph.operations:
        if operation.address in producers:
            layer = producers[operation.address]
            axis = 0 if layer.is_matrix else -1  # the channels are a norm's last axis
            bias = [] if layer.bias is None else [layer.bias.detach()]
            scaled = [one.movedim(axis, 0) for one in (layer.rows, *bias)]
        else:
            scaled = [one.detach() for one in _factor(model, graph, operation)]
        reading = list(_reading(graph, operation.address))
        layers = [
            linears[one] for one, port in reading if one in linears and linears[one].port == port
        ]
        if scaled and layers and len(layers) == len(reading):
            found.append((operation, scaled, layers))
    return found


def _reading(graph: NNCFGraph, address: str) -> Iterator[tuple[str, int]]:
    """Yield address and port of the readers of the result, skipping views of its channels."""
    for edge in graph.outgoing(address):
        view = graph.get(edge.target)
        if view is not None and view.function in _VIEWS and _keeps_channels(view):
            yield from _reading(graph, view.address)
        else:
            yield edge.target, edge.target_port


def _keeps_channels(view: Operation) -> bool:
    entering = view.inputs[0]
    return entering is not None and entering.shape[-1:] == view.outputs[0].shape[-1:]


def _factor(model: nn.Module, graph: NNCFGraph, operation: Operation) -> list[nn.Parameter]:
    """Return the parameter with one entry per channel of a product, if there is one."""
    names = list(operation.parameters.values())
    if operation.function not in _PRODUCTS or len(names) != 1:
        return []
    if names[0] in shared_parameters(model, graph):
        return []
    factor = dict(model.named_parameters(remove_duplicate=False)).get(names[0])
    if factor is None or factor.shape != operation.outputs[0].shape[-1:]:
        return []
    return [factor]


def _input_peaks(
    model: nn.Module, layers: Sequence[Layer], batches: Iterable[ExampleInputs]
) -> list[Tensor]:
    """Return the largest magnitude of each input channel of each layer."""
    peaks: dict[int, Tensor] = {}
    widths = {id(one.module): one.rows.shape[1] for one in layers}

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        width = widths[id(module)]
        given = (one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
        entering = next(one for one in given if one.shape[-1] == width)
        peak = wide(entering).abs().reshape(-1, entering.shape[-1]).amax(0)
        before = peaks.get(id(module))
        peaks[id(module)] = peak if before is None else torch.maximum(before, peak)

    with ExitStack() as stack:
        for one in layers:
            stack.enter_context(one.module.register_forward_pre_hook(note, with_kwargs=True))
        run_batches(model, batches)
    return [peaks[id(one.module)] for one in layers]
