"""Store the quantized weights of recurrent layers as integers.

ONNX orders the gates of an LSTM or a GRU differently from torch, and holds both directions in one
tensor. The exporter therefore slices and concatenates each weight after its quantizer; this module
does so once, on the values and on the scales of their rows.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import DOMAIN, FAKE_QUANTIZE, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import add_constant, constant_of, input_of, new_node
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

_LOGGER = logging.getLogger(__name__)
_LAYERS: Final = frozenset({"GRU", "LSTM", "RNN"})
_WEIGHTS: Final = (1, 2)
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Arranged:
    """A quantized weight in the order in which a layer reads it.

    Attributes:
        values: The weight in float, not rounded yet.
        scale: The scale of each element.
        zero_point: The zero point of each element.
        ends: The least and the greatest integer.
    """

    values: Array
    scale: Array
    zero_point: Array
    ends: tuple[int, int]


def arrange_recurrent_weights(model: "ir.Model") -> None:
    """Give each weight of a recurrent layer a single quantizer, with gates in the order of ONNX.

    A weight with d directions of r rows each becomes a constant matrix of d * r rows, a
    fake-quantize with a scale per row, and a reshape. Weights that are not built from constants by
    moving whole rows stay as they are.
    """
    _write_weights(model, _is_recurrent, _written)


def write_recurrent_weights_in_float(model: "ir.Model", target: Target) -> None:
    """Write rounded weights of recurrent layers as floats if activations are quantized as well.

    This applies to GRUs and unidirectional LSTMs, where OpenVINO needs constants. The log names
    the layers.
    """
    if all(constant_of(input_of(one)) is not None for one in model.graph if is_fake_quantize(one)):
        return
    for name in _write_weights(model, _wants_constants, _rounded):
        _LOGGER.warning(
            "%s reads the weights of '%s' as floats next to quantized tensors: they are written "
            "as floats, rounded as simulated.",
            target.name,
            name,
        )


def _wants_constants(node: "ir.Node") -> bool:
    direction = node.attributes.get_string("direction", "forward")
    return node.op_type == "GRU" or (node.op_type == "LSTM" and direction != "bidirectional")


def _is_recurrent(node: "ir.Node") -> bool:
    return node.op_type in _LAYERS


def _write_weights(
    model: "ir.Model", takes: "Callable[[ir.Node], bool]", write: "_Write"
) -> list[str]:
    """Rewrite by `write` the weights of layers for which `takes` is True; return their names."""
    from onnx_ir.passes.common import unused_removal

    changed: dict[str, None] = {}
    for node in [one for one in model.graph if takes(one) and not one.domain]:
        for index in _WEIGHTS:
            arranged = _arranged(input_of(node, index))
            if arranged is not None and np.ptp(arranged.scale, axis=-1).max(initial=0) == 0:
                node.replace_input_with(index, write(arranged, node, index, model.graph))
                changed[str(node.name)] = None
    if changed:
        unused_removal.RemoveUnusedNodesPass()(model)
    return list(changed)


def _arranged(value: "ir.Value") -> _Arranged | None:
    """Return the weight in `value` if it is built from quantized constants by movements."""
    node = value.producer()
    if node is None:
        return None
    if is_fake_quantize(node):
        return _quantized(node)
    if node.domain or node.op_type not in _MOVES:
        return None
    count = len(node.inputs) if node.op_type == "Concat" else 1
    parts = [_arranged(input_of(node, index)) for index in range(count)]
    given = [one for value in node.inputs[count:] if (one := constant_of(value)) is not None]
    known = [one for one in parts if one is not None]
    is_missing = len(given) < len(node.inputs) - count or len(known) < count
    if is_missing or len({one.ends for one in known}) > 1:
        return None
    values, scale, zero_point = (
        _MOVES[node.op_type](node, given, [getattr(one, name) for one in known])
        for name in ("values", "scale", "zero_point")
    )
    return _Arranged(values, scale, zero_point, known[0].ends)


def _quantized(node: "ir.Node") -> _Arranged | None:
    values = constant_of(input_of(node))
    if values is None:
        return None
    grid = grid_of(node)
    scale, zero_point = (np.broadcast_to(one, values.shape) for one in grid.along(values.ndim))
    return _Arranged(values, scale, zero_point, (grid.low, grid.high))


_Write = Callable[[_Arranged, "ir.Node", int, "ir.Graph"], "ir.Value"]


def _concat(node: "ir.Node", _: Sequence[Array], parts: Sequence[Array]) -> Array:
    return np.concatenate(parts, node.attributes["axis"].as_int())


def _slice(_: "ir.Node", given: Sequence[Array], parts: Sequence[Array]) -> Array:
    starts, ends = given[0].tolist(), given[1].tolist()
    axes = given[2].tolist() if len(given) > 2 else list(range(len(starts)))  # noqa: PLR2004 (an option)
    steps = given[3].tolist() if len(given) > 3 else [1] * len(starts)  # noqa: PLR2004 (the same)
    cut = [slice(None)] * parts[0].ndim
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(*bounds)
    return parts[0][tuple(cut)]


def _reshape(_: "ir.Node", given: Sequence[Array], parts: Sequence[Array]) -> Array:
    sizes = enumerate(given[0].tolist())  # 0 keeps the size of the axis
    return parts[0].reshape([size or parts[0].shape[axis] for axis, size in sizes])


def _unsqueeze(_: "ir.Node", given: Sequence[Array], parts: Sequence[Array]) -> Array:
    return np.expand_dims(parts[0], tuple(given[0].tolist()))


_MOVES: Final[dict[str, Callable[["ir.Node", Sequence[Array], Sequence[Array]], Array]]] = {
    "Concat": _concat,
    "Reshape": _reshape,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
}


def _name(node: "ir.Node", index: int) -> str:
    return f"{node.name or node.op_type}.{('weight_ih', 'weight_hh')[index - 1]}"


def _rounded(arranged: _Arranged, node: "ir.Node", index: int, graph: "ir.Graph") -> "ir.Value":
    """Store the rounded values of `arranged` in float, and return the constant."""
    scale, zero_point = arranged.scale, arranged.zero_point
    steps = np.clip(np.rint(arranged.values / scale) + zero_point, *arranged.ends)
    values = ((steps - zero_point) * scale).astype(arranged.values.dtype)
    return add_constant(graph, _name(node, index), values)


def _written(arranged: _Arranged, node: "ir.Node", index: int, graph: "ir.Graph") -> "ir.Value":
    """Insert rows, their quantizer and a reshape before `node`; return its new input."""
    import onnx_ir as ir

    values, width = arranged.values, arranged.values.shape[-1]
    name = _name(node, index)
    rows = add_constant(graph, name, values.reshape(-1, width))
    grid = [
        add_constant(graph, f"{name}_{part}", array.reshape(-1, width)[:, 0])
        for part, array in (("grid", arranged.scale), ("zero", arranged.zero_point))
    ]
    low, high = arranged.ends
    limits = {"axis": 0, "quant_min": low, "quant_max": high}
    rounded = new_node(FAKE_QUANTIZE, [rows, *grid], node, limits, domain=DOMAIN)
    shape = add_constant(graph, f"{name}_shape", np.array(values.shape))
    reshaped = new_node("Reshape", [rounded.outputs[0], shape], node)
    graph.insert_before(node, [rounded, reshaped])
    for one, size in ((rounded, (values.size // width, width)), (reshaped, values.shape)):
        one.outputs[0].type, one.outputs[0].shape = rows.type, ir.Shape(size)
    return reshaped.outputs[0]
