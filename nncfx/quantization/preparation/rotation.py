"""QuaRot: rotate the residual stream of a transformer so that no channel has outliers."""

import logging
import math
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.errors import GraphError
from nncfx.quantization.preparation.layer_chains import Layer
from nncfx.quantization.preparation.residual_stream import (
    ResidualStream,
    attention_pairs,
    residual_stream,
)
from nncfx.tracing import ExampleInputs, as_call, trace
from nncfx.tracing.calls.model_copy import own_model
from nncfx.tracing.calls.preservation import preserved
from nncfx.tracing.calls.tensors import tensors_in

_LOGGER = logging.getLogger(__name__)
_MOST_CHANGE: Final = 1e-3
"""Largest relative change of the outputs; more means that part of the stream was not found. It
holds for float64, too, because models compute norms in float32 anyway."""

_MOST_CHANGE_HALF: Final = 0.2


def rotate(
    model: nn.Module, example_inputs: ExampleInputs, *, seed: int = 0, inplace: bool = False
) -> nn.Module:
    """Return a copy of a language model with rotations in its weights; it computes the same.

    The weights of RMS norms are folded into the linear layers that read them. Then the residual
    stream is multiplied by a randomized Hadamard matrix, and the values of each attention head by
    another one. This spreads outliers of single channels over all channels, so one scale fits many
    channels, in activations and in weights. Products are computed in float64. Do this before
    `quantize_blocks` or `quantize`. If embeddings and head share a matrix, it is copied, because
    the head absorbs a norm.

    Layers are found by what the model computes, not by their names. Values are not rotated if one
    layer computes queries, keys and values, or if attention is not torch's; this is logged.

    Args:
        model: Plain, with its head; all norms of the stream are RMS norms.
        example_inputs: Inputs to trace it with, and to compare its outputs before and after.
        seed: Seed of the random signs, and of the part of the width that is no power of two.
        inplace: Rotate and return `model` itself.

    Raises:
        GraphError: the stream meets an operation that does not commute with rotations, such as a
            layer norm, a norm with a bias, or experts in one parameter; a copy is discarded.
        ArgumentError: the model cannot be copied.

    Source: Ashkboos et al. 2024, QuaRot, section 4 (R1 and the values' part of 4.2); Liu et al.
    2024, SpinQuant, figure 1 (R1 and R2), without training.
    """
    own = own_model(model, inplace=inplace)
    with preserved(own), torch.no_grad():
        before = _outputs(own, example_inputs)
        untied = _untie(own)
        graph = trace(own, example_inputs)
        stream, pairs = residual_stream(own, graph), attention_pairs(own, graph)
        generator = torch.Generator().manual_seed(seed)
        rotate_stream(own, stream, random_rotation(stream.width, generator))
        for values, reads, width in pairs:
            turn = random_rotation(width, generator)
            _turn_outputs(values, turn)
            _turn_inputs(reads, turn)
        _check(before, _outputs(own, example_inputs))
    count = sum(one.function == "scaled_dot_product_attention" for one in graph.operations)
    _LOGGER.info(
        "Rotated %d layers that read the residual stream, %d that write it, and the values of %d "
        "of %d attentions.%s",
        *(len(stream.readers), len(stream.writers), len(pairs), count),
        " The head has a matrix of its own now." if untied else "",
    )
    return own


def random_rotation(size: int, generator: torch.Generator) -> Tensor:
    """Return a random orthogonal matrix, size x size, float64.

    It is the Kronecker product of a random orthogonal matrix and a Hadamard matrix, whose size is
    the largest power of two that divides `size`, with random signs of its rows.
    """
    power = size & -size
    hadamard = torch.ones(1, 1, dtype=torch.float64, device="cpu")
    while len(hadamard) < power:
        hadamard = torch.cat(
            [torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)]
        )
    left = torch.randn(
        size // power, size // power, generator=generator, dtype=torch.float64, device="cpu"
    )
    block, upper = torch.linalg.qr(left)
    block = block * upper.diagonal().sign()
    signs = torch.randint(2, (size, 1), generator=generator, device="cpu").double() * 2 - 1
    return torch.kron(block.contiguous(), hadamard / math.sqrt(power)) * signs


def _untie(model: nn.Module) -> bool:
    """Copy the weights of linear layers that share them with an embedding."""
    modules = list(model.modules())
    embedded = {id(one.weight) for one in modules if isinstance(one, nn.Embedding)}
    tied = [one for one in modules if isinstance(one, nn.Linear) and id(one.weight) in embedded]
    for one in tied:
        one.weight = nn.Parameter(one.weight.detach().clone(), one.weight.requires_grad)
    config: Any = getattr(model, "config", None)
    if tied and hasattr(config, "tie_word_embeddings"):
        config.tie_word_embeddings = (
            False  # otherwise loading the saved model would tie them again
        )
    return bool(tied)


@torch.no_grad()
def rotate_stream(model: nn.Module, stream: ResidualStream, turn: Tensor) -> None:
    """Fold norms and multiply the residual stream by `turn`, orthogonal, d x d, in place."""
    stored = dict(model.named_parameters(remove_duplicate=False))
    for layer, norm in stream.readers:
        rows = layer.rows.double()
        layer.take(rows if norm is None else rows * stored[norm].double())
        _turn_inputs(layer, turn)
    for name in stream.norms:
        stored[name].fill_(1)
    for weight in {id(stored[name]): stored[name] for name in stream.embeddings}.values():
        weight.copy_(weight.double() @ turn.to(weight.device))
    for layer in stream.writers:
        _turn_outputs(layer, turn)


def _turn_inputs(layer: Layer, turn: Tensor) -> None:
    """Change a layer to read x @ turn instead of x, for each part x of its inputs."""
    rows = layer.rows
    parts = rows.double().reshape(len(rows), -1, len(turn)) @ turn.to(rows.device)
    layer.take(parts.reshape(rows.shape))


def _turn_outputs(layer: Layer, turn: Tensor) -> None:
    """Change a layer to return y @ turn instead of y, for each part y of its outputs."""
    rows, bias, own = layer.rows, layer.bias, turn.to(layer.weight.device)
    parts = own.T @ rows.double().reshape(-1, len(turn), rows.shape[1])
    layer.take(parts.reshape(rows.shape))
    if bias is not None:
        bias.copy_((bias.double().reshape(-1, len(turn)) @ own).reshape(bias.shape))


def _outputs(model: nn.Module, inputs: ExampleInputs) -> list[Tensor]:
    args, kwargs = as_call(inputs)
    found = tensors_in(model.eval()(*args, **kwargs))  # does not include a cache
    return [one.detach().clone() for one in found if one.is_floating_point()]


def _check(before: list[Tensor], after: list[Tensor]) -> None:
    """Check that the rotation did not change what the model computes."""
    for one, other in zip(before, after, strict=True):
        change = float((other.double() - one.double()).norm() / one.double().norm().clamp(1e-30))
        is_half = one.dtype in {torch.float16, torch.bfloat16}
        if not change <= (_MOST_CHANGE_HALF if is_half else _MOST_CHANGE):
            raise GraphError(
                f"Rotated, the model returns something else (relative change {change:.2g}), so "
                "something reads its residual stream that the trace does not show. Quantize the "
                "model without rotation."
            )
