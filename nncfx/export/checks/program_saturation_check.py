"""Warn of a program that Inductor would compute wrongly on the CPU at hand."""

from typing import Final

import torch
from torch import fx

from nncfx.export.checks.saturation_check import MOST
from nncfx.processors import byte_sums_saturate
from nncfx.quantization.placement.overflow_fix import warn_saturation

__all__ = ["overflowing_readers", "warn_program_overflow"]

_MEND: Final = (
    "Quantize with 7 bits of weights: QuantizeOptions(overflow_fix='enable'), in a config "
    "'overflow_fix': 'enable', or target='onnxruntime-avx2'."
)
_PASSED: Final = (torch.ops.aten.t.default, torch.ops.aten.to.dtype)


def overflowing_readers(module: fx.GraphModule) -> tuple[str, ...]:
    """Return the names of layers whose sums of two products may need more than 16 bits.

    They read a dequantized activation and a stored weight of which an integer is beyond 64.
    """
    quantized = torch.ops.quantized_decomposed
    found = []
    for node in module.graph.nodes:
        if node.target is not quantized.dequantize_per_channel.default:
            continue
        integers = getattr(module, str(node.args[0].target))
        readers = _readers(node)
        if int(integers.amax()) > MOST or int(integers.amin()) < -MOST:
            found += [
                reader.name
                for reader in readers
                if quantized.dequantize_per_tensor.default
                in {_source(one).target for one in reader.all_input_nodes}
            ]
    return tuple(found)


def _readers(node: fx.Node) -> list[fx.Node]:
    """Return what reads `node`, as it is, turned or in another type."""
    found = []
    for one in node.users:
        found += _readers(one) if one.target in _PASSED else [one]
    return found


def _source(node: fx.Node) -> fx.Node:
    """Return what `node` only turns, or gives another type."""
    return _source(node.all_input_nodes[0]) if node.target in _PASSED else node


def warn_program_overflow(module: fx.GraphModule) -> None:
    """Warn, in the log, if Inductor computes some layers of `module` wrongly on this CPU."""
    if byte_sums_saturate():
        warn_saturation(len(overflowing_readers(module)), "Inductor", "program", _MEND)
