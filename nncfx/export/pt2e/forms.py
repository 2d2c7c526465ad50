"""Move dequantizations of a `torch.export` graph before the layers, where Inductor finds them."""

from typing import Any, Final

import torch
from torch import fx

_ATEN: Final = torch.ops.aten
_MOVES: Final = frozenset(
    {
        *(_ATEN.alias.default, _ATEN.channel_shuffle.default, _ATEN.clone.default),
        *(_ATEN.contiguous.default, _ATEN.expand.default, _ATEN.flatten.using_ints),
        *(_ATEN.flip.default, _ATEN.index.Tensor, _ATEN.index_select.default, _ATEN.movedim.int),
        *(_ATEN.narrow.default, _ATEN.permute.default, _ATEN.pixel_shuffle.default),
        *(_ATEN.pixel_unshuffle.default, _ATEN.reshape.default, _ATEN.roll.default),
        *(_ATEN.select.int, _ATEN.slice.Tensor, _ATEN.squeeze.default, _ATEN.squeeze.dim),
        *(_ATEN.squeeze.dims, _ATEN.t.default, _ATEN.transpose.int, _ATEN.unflatten.int),
        *(_ATEN.unsqueeze.default, _ATEN.upsample_nearest2d.vec, _ATEN.view.default),
    }
)
"""Operators that only move elements, and so can also move integers."""

_SPLITS: Final = frozenset(
    {_ATEN.chunk.default, _ATEN.split.Tensor, _ATEN.split_with_sizes.default, _ATEN.unbind.int}
)
_DROPOUTS: Final = frozenset(
    {_ATEN.alpha_dropout.default, _ATEN.dropout.default, _ATEN.feature_dropout.default}
)
_POOLS: Final = frozenset({_ATEN.max_pool1d.default, _ATEN.max_pool2d.default})
_JOIN: Final = _ATEN.cat.default
_PAD: Final = _ATEN.pad.default
_ZERO_POINT: Final = 1
"""Its index in a grid."""


def dequantize_where_read(graph: fx.Graph) -> None:
    """Move each dequantization of `graph`, in place, down to the operators that compute with it.

    Movements then run on integers, and tensors on one grid are concatenated as integers. Max
    pooling is followed by another pair, which changes no value, because Inductor recognizes it in
    this form. Dropout, which does nothing in inference, is removed. Results stay the same, except
    for the order of sums where the memory layout changes.
    """
    for node in list(graph.nodes):
        if node.target in _DROPOUTS and node.args[2] is False:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    for node in graph.nodes:  # in order, so new dequantizations are visited later
        source = _dequantized(node.args[0]) if node.args else None
        if node.target is _JOIN:
            _join(node, graph)
        elif source is not None:
            _read_integers(node, source, graph)
    graph.eliminate_dead_code()


def _read_integers(node: fx.Node, source: fx.Node, graph: fx.Graph) -> None:
    """Let `node` read the integers of the dequantization `source`, and dequantize its output.

    Operators that compute with values are left unchanged.
    """
    integers = source.all_input_nodes[0]
    grid: tuple[Any, ...] = source.args[1:]
    if node.target is torch.ops.quantized_decomposed.quantize_per_tensor.default:
        if node.args[1:] == grid:
            node.replace_all_uses_with(integers)
    elif node.target in _MOVES | _SPLITS:
        node.replace_input_with(source, integers)
        for moved in [node] if node.target in _MOVES else list(node.users):
            _dequantize(moved, grid, graph)
    elif node.target in _POOLS:
        _quantize_again(node, grid, graph)
    elif node.target is _PAD and _pads_zeros(node):
        node.args = (integers, node.args[1], "constant", float(grid[_ZERO_POINT]))
        node.kwargs = {}
        _dequantize(node, grid, graph)


def _pads_zeros(node: fx.Node) -> bool:
    """Return whether `node` pads with zeros, which are the zero point in integers."""
    given = dict(zip(("mode", "value"), node.args[2:], strict=False)) | dict(node.kwargs)
    return given.get("mode", "constant") == "constant" and not given.get("value")


def _dequantized(value: Any) -> fx.Node | None:  # noqa: ANN401 (an argument of any kind)
    """Return `value` if it is the dequantization of a tensor with one grid."""
    target = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    return value if isinstance(value, fx.Node) and value.target is target else None


def _join(node: fx.Node, graph: fx.Graph) -> None:
    """Let a concatenation read integers if all of its inputs are on one grid."""
    parts: Any = node.args[0]
    sources = [_dequantized(one) for one in parts]
    found = [one for one in sources if one is not None]
    grid = found[0].args[1:] if found else ()
    if len(found) == len(sources) and all(one.args[1:] == grid for one in found):
        node.args = ([one.args[0] for one in found], *node.args[1:])
        _dequantize(node, grid, graph)


def _dequantize(integers: fx.Node, grid: tuple[Any, ...], graph: fx.Graph) -> None:
    """Dequantize `integers` for each reader by a separate node."""
    for reader in list(integers.users):
        with graph.inserting_before(reader):
            read = graph.call_function(
                torch.ops.quantized_decomposed.dequantize_per_tensor.default, (integers, *grid)
            )
        reader.replace_input_with(integers, read)


def _quantize_again(node: fx.Node, grid: tuple[Any, ...], graph: fx.Graph) -> None:
    """Insert a pair on `grid` after `node`, whose values are already on it."""
    with graph.inserting_after(node):
        integers = graph.call_function(
            torch.ops.quantized_decomposed.quantize_per_tensor.default, (node, *grid)
        )
    node.replace_all_uses_with(integers, delete_user_cb=lambda user: user is not integers)
    _dequantize(integers, grid, graph)
