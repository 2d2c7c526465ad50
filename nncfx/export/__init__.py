"""Write a model as a file that a runtime reads."""

from nncfx.export.export_result import ExportResult
from nncfx.export.node_modules import modules_in_file
from nncfx.export.onnx_export import export_onnx
from nncfx.export.targets import TARGETS, Target

__all__ = ["TARGETS", "ExportResult", "Target", "export_onnx", "modules_in_file"]
