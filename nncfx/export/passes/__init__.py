"""Passes over an ONNX graph, one a module."""
