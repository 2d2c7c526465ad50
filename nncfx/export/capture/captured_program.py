"""Capture a model as a program that torch's ONNX exporter takes, as it would itself."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch._ops import HigherOrderOperator
from torch.onnx._internal.exporter import _dynamic_shapes as dynamic_shapes
from torch.onnx._internal.exporter._capture_strategies import TorchExportNonStrictStrategy
from torch.onnx._internal.exporter._flags import set_onnx_exporting_flag

from nncfx.export.capture.attention_axes import ATTENTION_AXES
from nncfx.export.capture.decomposition import QuicklyDecomposed
from nncfx.export.capture.dynamic_batch import Call
from nncfx.export.capture.exportable_calls import ExportableCalls
from nncfx.network import NNCFNetwork

__all__ = ["captured_program"]


def captured_program(
    model: nn.Module, call: Call, axes: dict[str, Any] | None
) -> torch.export.ExportedProgram | None:
    """Return `model` as a program that is decomposed quickly; None if torch has to try harder.

    `ExportableCalls` are on for the capture alone, and for none that needs no other form: a mode
    is entered some hundred times for each operation that torch captures or decomposes. A wrapped
    model is not told that ONNX is written (`torch.onnx.is_in_onnx_export`): its hooks stand at
    the calls that it makes otherwise.

    Args:
        model: in the mode in which it is exported.
        call: the inputs.
        axes: which of their axes stay open, by argument of the forward.
    """
    opened, _ = dynamic_shapes.convert_str_to_export_dim(axes)
    capture: Callable[..., Any] = TorchExportNonStrictStrategy(verbose=False)
    if not any(isinstance(module, NNCFNetwork) for module in model.modules()):
        capture = set_onnx_exporting_flag(capture)
    program = capture(model, call[0], call[1], dynamic_shapes=opened).exported_program
    if program is None or any(map(_has_other_form, program.graph.nodes)):
        with ExportableCalls():
            program = capture(model, call[0], call[1], dynamic_shapes=opened).exported_program
    return None if program is None else QuicklyDecomposed.of(program)


def _has_other_form(node: fx.Node) -> bool:
    """Return whether `ExportableCalls` may compute `node` otherwise."""
    if node.op == "call_module" or isinstance(node.target, HigherOrderOperator):
        return True
    if node.target is torch.ops.aten.scaled_dot_product_attention.default:
        return any(one.meta["val"].ndim != ATTENTION_AXES for one in node.all_input_nodes[:3])
    return node.target is torch.ops.aten.einsum.default
