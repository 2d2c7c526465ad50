"""Passes over an ONNX graph, one per module."""
