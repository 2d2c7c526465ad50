"""Write a model as a file that a runtime reads."""

from nncfx.export.causal_lm import export_causal_lm
from nncfx.export.checks.file_summary import ONNXSummary, summarize_onnx
from nncfx.export.checks.qdq_check import QDQViolation, qdq_violations
from nncfx.export.export_result import ExportResult
from nncfx.export.extension_passes import register_export_pass, unregister_export_pass
from nncfx.export.ir.export_pass import Draft, ExportPass
from nncfx.export.ir.node_modules import modules_in_file
from nncfx.export.ir.pass_record import explain
from nncfx.export.onnx_export import export_onnx
from nncfx.export.pipeline import PASSES
from nncfx.export.pt2e.export_program import export_program
from nncfx.reorder.order import channel_order
from nncfx.reorder.reads import ChannelRead, channel_reads, copied_channels
from nncfx.reorder.reorder import ReorderResult, reorder_channels
from nncfx.reorder.rewriting import LayerRead, LayerWrite
from nncfx.targets import SelectionCost, Target

__all__ = [
    "PASSES",
    "ChannelRead",
    "Draft",
    "ExportPass",
    "ExportResult",
    "LayerRead",
    "LayerWrite",
    "ONNXSummary",
    "QDQViolation",
    "ReorderResult",
    "SelectionCost",
    "Target",
    "channel_order",
    "channel_reads",
    "copied_channels",
    "explain",
    "export_causal_lm",
    "export_onnx",
    "export_program",
    "modules_in_file",
    "qdq_violations",
    "register_export_pass",
    "reorder_channels",
    "summarize_onnx",
    "unregister_export_pass",
]
