"""Warn of a file that the CPU at hand would compute wrongly."""

from typing import TYPE_CHECKING, Final

import numpy as np
from torch import nn

from nncfx.export.ir.graph_edits import input_of, nodes_of
from nncfx.export.ir.layer_inputs import CONTRACTIONS, is_dequantized, stored_integers
from nncfx.processors import byte_sums_saturate
from nncfx.quantization.placement.insertions import plans_of
from nncfx.quantization.placement.overflow_fix import warn_saturation
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["MOST", "overflowing_layers", "warn_overflow"]

MOST: Final = 64
"""Two products of it with 255 fit into 16 bits."""


def overflowing_layers(graph: "ir.Graph") -> tuple[str, ...]:
    """Return the names of layers whose sums of two products may need more than 16 bits.

    They are those with a quantized activation and a stored weight of which an integer is beyond
    64: two products of 255 and 65 are more than 32767.
    """
    return tuple(
        str(node.name)
        for node in nodes_of(graph, *CONTRACTIONS)
        if _is_computed_in_integers(input_of(node)) and _is_beyond(input_of(node, 1))
    )


def warn_overflow(graph: "ir.Graph", target: Target, model: nn.Module) -> None:
    """Warn, in the log, if the CPU at hand computes some layers of `graph` wrongly.

    Where `model` was quantized for `target` here, it was told then.
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
    return max(int(integers.max(initial=0)), -int(integers.min(initial=0))) > MOST


def _is_computed_in_integers(value: "ir.Value") -> bool:
    """Return whether `value` is dequantized from what the graph computes."""
    return is_dequantized(value) and stored_integers(value) is None
