"""Channel rules of products of activations: matmul, einsum, attention.

A product is written with one letter per axis, as in einsum. No weight reads its channels, so
channels that it sums over are tied, also between both operands.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from nncfx.channels.ids import compact, narrowed, varying_axes
from nncfx.channels.rules.calls import argument, channel_rule, place_of, unknown
from nncfx.channels.rules.contraction import weighted_product
from nncfx.channels.state import ChannelState
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.record.function_mode import TracedCall

_SUMS = "sums over its channels"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_STEP = 16
"""Bytes; grouped products require matrix rows whose distance is a multiple of it."""


class _Operand(NamedTuple):
    grid: torch.Tensor
    letters: str


@channel_rule("matrix_product")
def matrix_product(state: ChannelState, call: TracedCall) -> None:
    """Follow a product of two activations over the last two axes."""
    first, second = call.operands[:2]
    if min(first.dim(), second.dim()) < 2:  # noqa: PLR2004 (a matrix has two axes)
        return unknown(state, call)
    if state.source(first) is None and state.source(second) is not None:
        return _weighted(state, call)
    if state.source(first) is not None and state.source(second) is None:
        return _weighted_left(state, call)
    if any(state.source(tensor) is not None for tensor in (first, second)):
        return unknown(state, call, "multiplies with a parameter as a matrix")
    batch = _LETTERS[: max(first.dim(), second.dim()) - 2]
    one = _Operand(state.ids(first), batch[len(batch) - first.dim() + 2 :] + "XY")
    other = _Operand(state.ids(second), batch[len(batch) - second.dim() + 2 :] + "YZ")
    grid = _product(state, call, (one, other), batch + "XZ")
    return _put(state, call, grid)


def _weighted(state: ChannelState, call: TracedCall) -> None:
    """Follow a product with a parameter `i x o` or a stack of these, possibly transposed."""
    data, weight = call.operands[:2]
    found = state.matrix(weight)
    if found is None:
        return unknown(state, call, "multiplies with a parameter as a matrix")
    return weighted_product(state, call, state.ids(data), found)


@channel_rule("grouped_product")
def grouped_product(state: ChannelState, call: TracedCall) -> None:
    """Follow a product of groups of rows with one matrix of a stack each (experts)."""
    data = call.operands[0]
    if state.source(data) is not None or call.result.dim() != data.dim():
        return unknown(state, call, "multiplies groups of rows")
    _weighted(state, call)
    weight, multiple = call.operands[1], _STEP // data.element_size()
    grids = [state.ids(data)]
    if weight.stride(-1) == 1:  # its rows have the width of the result
        grids.append(state.ids(call.result))
    for grid in grids:
        ids = state.sequence(grid, -1, place_of(call))
        if ids is not None:
            state.ledger.align(ids, multiple)
    return None


def _weighted_left(state: ChannelState, call: TracedCall) -> None:
    """Follow a product of a parameter `o x i` with the second to last axis."""
    weight, data = call.operands[:2]
    name = state.whole_parameter(weight)
    if name is None or weight.dim() != 2:  # noqa: PLR2004 (a matrix has two axes)
        return unknown(state, call, "multiplies with a parameter as a matrix")
    return weighted_product(state, call, state.ids(data), (name, 1, 0), axis=-2)


@channel_rule("batched_add_product")
def batched_add_product(state: ChannelState, call: TracedCall) -> None:
    """Follow `baddbmm`, a sum with a product of two batches of matrices."""
    addend, first, second = call.operands[:3]
    if any(state.source(tensor) is not None for tensor in (addend, first, second)):
        return unknown(state, call, "multiplies with a parameter as a matrix")
    operands = (_Operand(state.ids(first), "aXY"), _Operand(state.ids(second), "aYZ"))
    grid = _product(state, call, operands, "aXZ")
    if state.grid(addend) is not None:
        grid = state.merge_grids([grid, state.ids(addend)], call.result.shape, place_of(call))
    return _put(state, call, grid)


@channel_rule("einsum")
def einsum(state: ChannelState, call: TracedCall) -> None:
    """Follow an einsum of activations without repeated letters."""
    equation, *rest = call.args
    tensors = tensors_in(rest)
    if not isinstance(equation, str) or "." in equation or "->" not in equation:
        return unknown(state, call)
    left, out = equation.replace(" ", "").split("->")
    inputs = left.split(",")
    plain = all(len(set(letters)) == len(letters) for letters in (*inputs, out))
    if not plain or any(state.source(tensor) is not None for tensor in tensors):
        return unknown(state, call, "multiplies with a parameter")
    operands = [_Operand(state.ids(t), s) for t, s in zip(tensors, inputs, strict=True)]
    return _put(state, call, _product(state, call, operands, out))


@channel_rule("attention")
def attention(state: ChannelState, call: TracedCall) -> None:
    """Follow `scaled_dot_product_attention`; key and value may have fewer heads than queries."""
    query, key, value = (
        argument(call, place, name) for place, name in enumerate(("query", "key", "value"))
    )
    mask = argument(call, 3, "attn_mask")
    if any(state.source(tensor) is not None for tensor in (query, key, value)):
        return unknown(state, call, "attends to a parameter")
    batch = _LETTERS[: query.dim() - 2]
    grids = [state.ids(query), state.ids(key), state.ids(value)]
    if argument(call, 8, "enable_gqa", default=False):
        heads = query.shape[-3]
        grids[1:] = [g.repeat_interleave(heads // g.shape[-3], -3) for g in grids[1:]]
    one, other = _Operand(grids[0], batch + "XY"), _Operand(compact(grids[1]), batch + "ZY")
    scores = _product(state, call, (one, other), batch + "XZ")
    if isinstance(mask, torch.Tensor) and state.is_known(mask):
        biased = torch.empty(scores.shape, device="meta")
        state.set_grid(biased, scores)
        shape = (*query.shape[:-1], key.shape[-2])
        scores = state.merge([biased, mask], shape, place_of(call))
    scores = state.mix(scores, [scores.dim() - 1], (place_of(call), _SUMS))
    operands = (_Operand(scores, batch + "XZ"), _Operand(compact(grids[2]), batch + "ZV"))
    return _put(state, call, _product(state, call, operands, batch + "XV"))


def _product(
    state: ChannelState, call: TracedCall, operands: Sequence[_Operand], out: str
) -> torch.Tensor:
    """Return the ids of a product, with one axis per letter of `out`."""
    place = place_of(call)
    lifted = []
    for grid, letters in operands:
        summed = [axis for axis, letter in enumerate(letters) if letter not in out]
        mixed = narrowed(state.mix(grid, summed, (place, _SUMS)))
        if any(axis in varying_axes(mixed) for axis in summed):  # fixed there
            mixed = _first(mixed, range(mixed.dim()))
        mixed = _first(mixed, summed)
        lifted.append(_arranged(mixed, letters, out))
    return _outer(state, lifted, place)


def _arranged(grid: torch.Tensor, letters: str, out: str) -> torch.Tensor:
    """Return a grid with one axis per letter of `out`; new axes have size 1."""
    there = [axis for axis, letter in enumerate(letters) if letter in out]
    grid = grid.reshape([grid.shape[axis] for axis in there])
    places = [out.index(letters[axis]) for axis in there]
    grid = grid.permute(sorted(range(len(places)), key=places.__getitem__))
    shape = [1] * len(out)
    for place, size in zip(sorted(places), grid.shape, strict=True):
        shape[place] = size
    return compact(grid.reshape(shape))


def _outer(state: ChannelState, grids: Sequence[torch.Tensor], place: str) -> torch.Tensor:
    """Return the ids of an outer product, in which the ids of both operands are tied."""
    moving = [grid for grid in grids if varying_axes(grid)]
    if not moving:
        return grids[0]
    common = set.intersection(*(set(varying_axes(grid)) for grid in moving))
    wider = [grid for grid in moving if set(varying_axes(grid)) - common]
    if len(wider) > 1:
        moving = [
            state.mix(grid, set(varying_axes(grid)) - common, (place, "pairs its channels"))
            for grid in moving
        ]
        if not common:
            return _first(moving[0], range(moving[0].dim()))
    moving.sort(key=lambda grid: len(varying_axes(grid)))
    result = narrowed(moving[0])
    for grid in moving[1:]:
        small = narrowed(grid)
        size = [max(a, b) for a, b in zip(result.shape, small.shape, strict=True)]
        one, other = result.expand(size), small.expand(size)
        state.ledger.tie(one.reshape(-1).numpy(), other.reshape(-1).numpy(), place)
        result = compact(one)
    return result


def _first(grid: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    for axis in axes:
        grid = grid.narrow(axis, 0, 1)
    return grid


def _put(state: ChannelState, call: TracedCall, grid: torch.Tensor) -> None:
    state.set_grid(call.result, narrowed(grid).expand(call.result.shape))
