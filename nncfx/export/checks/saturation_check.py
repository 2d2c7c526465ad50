"""Warn of files and programs whose integer sums would overflow on this CPU."""

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import fx, nn

from nncfx.export.ir.graph_edits import input_of, nodes_of
from nncfx.export.ir.layer_inputs import CONTRACTIONS, is_dequantized, stored_integers
from nncfx.processors import byte_sums_saturate
from nncfx.quantization.placement.insertions import plans_of
from nncfx.quantization.placement.overflow_fix import warn_saturation
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

_MOST: Final = 64
"""The sum of two products of this number and 255 fits into 16 bits."""
_FIX: Final = (
    "Quantize with 7 bits of weights: QuantizeOptions(overflow_fix='enable'), in a config "
    "'overflow_fix': 'enable', or target='onnxruntime-avx2'."
)
_PASSED: Final = (torch.ops.aten.t.default, torch.ops.aten.to.dtype)


def overflowing_layers(graph: "ir.Graph") -> tuple[str, ...]:
    """Return the names of layers whose sums of two products may need more than 16 bits.

    These layers have a quantized activation and a stored weight with an integer beyond 64: two
    products of 255 and 65 exceed 32767.
    """
    return tuple(
        str(node.name)
        for node in nodes_of(graph, *CONTRACTIONS)
        if is_dequantized(input_of(node))
        and stored_integers(input_of(node)) is None
        and _is_beyond(input_of(node, 1))
    )


def warn_overflow(graph: "ir.Graph", target: Target, model: nn.Module) -> None:
    """Warn if this CPU would compute some layers of `graph` wrongly.

    There is no second warning if `model` was quantized here for `target`, which warned already.
    """
    was_told = any(one.saturating and one.target == target for one in plans_of(model))
    if target.saturation_mend and not was_told and byte_sums_saturate():
        warn_saturation(
            len(overflowing_layers(graph)), target.name, "file", target.saturation_mend
        )


def _is_beyond(value: "ir.Value") -> bool:
    """Return whether `value` is a stored weight with an integer beyond 64."""
    integers = stored_integers(value)
    if integers is None or integers.dtype != np.int8:
        return False
    return max(int(integers.max(initial=0)), -int(integers.min(initial=0))) > _MOST


def overflowing_readers(module: fx.GraphModule) -> tuple[str, ...]:
    """Return the names of layers whose sums of two products may need more than 16 bits.

    These layers read a dequantized activation and a stored weight with an integer beyond 64.
    """
    quantized = torch.ops.quantized_decomposed
    found = []
    for node in module.graph.nodes:
        if node.target is not quantized.dequantize_per_channel.default:
            continue
        integers = getattr(module, str(node.args[0].target))
        readers = _readers(node)
        if int(integers.amax()) > _MOST or int(integers.amin()) < -_MOST:
            found += [
                reader.name
                for reader in readers
                if quantized.dequantize_per_tensor.default
                in {_source(one).target for one in reader.all_input_nodes}
            ]
    return tuple(found)


def _readers(node: fx.Node) -> list[fx.Node]:
    """Return the readers of `node`, looking through transpositions and casts."""
    found = []
    for one in node.users:
        found += _readers(one) if one.target in _PASSED else [one]
    return found


def _source(node: fx.Node) -> fx.Node:
    """Return the source of `node`, looking through transpositions and casts."""
    return _source(node.all_input_nodes[0]) if node.target in _PASSED else node


def warn_program_overflow(module: fx.GraphModule) -> None:
    """Warn if Inductor would compute some layers of `module` wrongly on this CPU."""
    if byte_sums_saturate():
        warn_saturation(len(overflowing_readers(module)), "Inductor", "program", _FIX)
